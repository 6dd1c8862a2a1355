"""The compiled transform and its form in NumPy against the formula, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import transform


@st.composite
def parts(draw):
    """(pixels, mirror, h_off, w_off, scale, out)."""
    channels, height, width = (draw(st.integers(1, 4)) for _ in range(3))
    h_off, w_off = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = channels, height + h_off + draw(st.integers(0, 2)), width + w_off + draw(st.integers(0, 40))
    pixels = rng.integers(0, 256, shape).astype(draw(st.sampled_from([np.uint8, np.float32])))
    real = draw(st.sampled_from([np.float32, np.float64]))
    out = np.empty((channels, height, width), real)
    return pixels, draw(st.booleans()), h_off, w_off, real(draw(st.floats(-3, 3))), out


def expected(pixels, mirror, h_off, w_off, mean, scale, out):
    wanted = np.empty_like(out)
    width = out.shape[2]
    for c, y, x in np.ndindex(out.shape):
        from_x = w_off + (width - 1 - x if mirror else x)
        pixel = out.dtype.type(pixels[c, h_off + y, from_x])
        less = mean[c] if mean.ndim == 1 else mean[c, h_off + y, from_x]
        wanted[c, y, x] = (pixel - less) * scale
    return wanted


@pytest.mark.parametrize("plain", [False, True])
@given(parts())
def test_values_and_images(plain, part):
    *place, scale, out = part
    pixels = place[0]
    rng = np.random.default_rng(1)
    values = rng.normal(100, 50, len(pixels)).astype(out.dtype)
    image = rng.normal(100, 50, pixels.shape).astype(out.dtype)
    for mean, kernel in (values, transform.less_values), (image, transform.less_image):
        out.fill(np.nan)
        (kernel.plain if plain else kernel)(*place, mean, scale, out)
        assert np.array_equal(out, expected(*place, mean, scale, out))
