"""Power: (shift + scale * x) ** power."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.sums import affine, check_size, in_double, scale, scaled
from refcaffe.side import Side


@register("Power")
class Power(NeuronLayer):
    """The gradient is found in one of five ways, as exact as each of them is; NaN at x = 0 in some.

    On a device even a gradient of 0 is multiplied with the top's diff: -0 and NaN come out of it.

    In place, all but the first of them overwrite the top's diff before they read it.
    """

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param, real = self.param.power_param, self.dtype.type
        self.power, self.scale, self.shift = real(param.power), real(param.scale), real(param.shift)
        self.diff_scale = self.power * self.scale

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        y = side.mutable_data(top[0])
        if self.diff_scale == 0:
            value = self.shift.astype(np.float64) ** self.power.astype(np.float64)
            y.fill(value if value != 0 else 0)  # -0 comes out as 0
            return
        x = side.data(bottom[0])
        if self.power == 1 or side.gpu:
            side.copy(y, x)
            x = y
        x = affine(side.xp, x, self.scale, self.shift, y)
        if self.power != 1:
            check_size(side, y.size)
            side.xp.power(x, self.power, out=y, **in_double(side.xp))

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        xp = side.xp
        dx, dy = side.mutable_diff(bottom[0]), side.diff(top[0])
        if self.diff_scale == 0 and not side.gpu:
            dx.fill(0)
            return
        check_size(side, dx.size)
        if self.power == 1 or self.diff_scale == 0:
            dx.fill(self.diff_scale)
        elif self.power == 2:
            scaled(xp, self.diff_scale * self.scale, side.data(bottom[0]), dx)
            if self.shift != 0:
                dx += self.diff_scale * self.shift
        elif self.shift == 0:
            x = side.data(bottom[0])
            xp.divide(side.data(top[0]), x, out=dx)
            scale(dx, self.power)
        else:
            side.copy(dx, side.data(bottom[0]))
            xp.divide(side.data(top[0]), affine(xp, dx, self.scale, self.shift, dx), out=dx)
            if self.diff_scale != 1:
                scale(dx, self.diff_scale)
        xp.multiply(dy, dx, out=dx)
