"""The hyperbolic tangent in single precision, operation by operation as glibc 2.36 has it.

It is up to 2 units in the last place from the true value, and 1 - tanh² magnifies by what another one
would differ. Method and constants are those of fdlibm:

    Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
    Developed at SunPro, a Sun Microsystems, Inc. business.
    Permission to use, copy, modify, and distribute this software is freely granted,
    provided that this notice is preserved.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refcaffe.kernels.compiled import compiled

_F = np.float32
_HALF, _ONE, _TWO, _THREE, _SIX = _F(0.5), _F(1), _F(2), _F(3), _F(6)
_LN2_HIGH, _LN2_LOW, _PER_LN2 = _F(6.9313812256e-01), _F(9.0580006145e-06), _F(1.4426950216)
_Q1, _Q2, _Q3 = _F(-3.3333335072e-02), _F(1.5873016091e-03), _F(-7.9365076090e-05)
_Q4, _Q5 = _F(4.0082177293e-06), _F(-2.0109921195e-07)
_HALF_LN2, _SATURATED, _TINY = _F(0.34657359), _F(22), _F(2.0**-25)


def _plain_tanh_float(x: Any, y: Any) -> None:
    """With fewer cases than the kernel: no number has another result for that, which was tried with all of them."""
    size = np.minimum(np.abs(x), _SATURATED)
    large = size >= _ONE
    a = np.where(large, _TWO * size, -_TWO * size)
    k = (_PER_LN2 * a + np.copysign(_HALF, a)).astype(np.int32)
    k[np.abs(a) <= _HALF_LN2] = 0
    times, power = k.astype(np.float32), np.ldexp(_ONE, k)
    high, low = a - times * _LN2_HIGH, times * _LN2_LOW
    r = high - low
    c = (high - r) - low
    half = _HALF * r
    s = r * half
    r1 = _ONE + s * (_Q1 + s * (_Q2 + s * (_Q3 + s * (_Q4 + s * _Q5))))
    u = _THREE - r1 * half
    at_0 = s * ((r1 - u) / (_SIX - r * u))
    e = (r * (at_0 - c) - c) - s
    below, above = (_ONE - (e - r)) * power - _ONE, ((_ONE - _ONE / power) - (e - r)) * power
    t = np.where(k == 0, r - (r * at_0 - s), np.where(k < -1, below, above))
    np.copysign(np.where(large, _ONE - _TWO / (t + _TWO), -t / (t + _TWO)), x, out=y)


@compiled(plain=_plain_tanh_float)
def tanh_float(x: Any, y: Any) -> None:
    """y = tanh(x), flat float32 arrays of one length; they may be the same."""
    for i in range(x.size):
        v = x[i]
        size = abs(v)
        if not size >= _TINY:  # or NaN
            y[i] = v
            continue
        if size >= _SATURATED:
            y[i] = math.copysign(_ONE, v)
            continue
        # t = exp(a) - 1, where a = k * ln 2 + r and c is what the rounding of r cost.
        a = _TWO * size if size >= _ONE else -_TWO * size
        k = 0
        if abs(a) > _HALF_LN2:
            k = -1 if -3 * _HALF_LN2 < a < 0 else int(_PER_LN2 * a + (_HALF if a > 0 else -_HALF))
        high, low = a - _F(k) * _LN2_HIGH, _F(k) * _LN2_LOW
        r = high - low
        c = (high - r) - low
        half = _HALF * r
        s = r * half
        r1 = _ONE + s * (_Q1 + s * (_Q2 + s * (_Q3 + s * (_Q4 + s * _Q5))))
        u = _THREE - r1 * half
        e = s * ((r1 - u) / (_SIX - r * u))
        if k == 0:
            t = r - (r * e - s)
        else:
            e = (r * (e - c) - c) - s
            power = _F(math.ldexp(1.0, k))
            if k == -1:
                t = _HALF * (r - e) - _HALF
            elif k < 0 or k > 56:
                t = (_ONE - (e - r)) * power - _ONE
            elif k < 23:
                t = ((_ONE - _ONE / power) - (e - r)) * power
            else:
                t = ((r - (e + _ONE / power)) + _ONE) * power
        z = _ONE - _TWO / (t + _TWO) if size >= _ONE else -t / (t + _TWO)
        y[i] = math.copysign(z, v)
