"""Products in pieces: the same sums whatever the pieces are, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from refcaffe.kernels import convolution, parallel, products
from refcaffe.kernels.convolution import Products
from refcaffe.kernels.im2col import Columns
from refcaffe.side import HOST

# group, channels of image and grid, image, kernel, stride, pad, dilation
WINDOWS = [
    (1, 3, 4, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 4, 6, (9, 11), (3, 2), (2, 3), (1, 0), (1, 1)),
    (1, 2, 3, (8, 8), (3, 3), (1, 1), (2, 2), (2, 2)),
    (4, 4, 4, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 5, 3, (6, 10), (1, 1), (1, 1), (0, 0), (1, 1)),
    (1, 2, 3, (5, 6, 7), (2, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (1, 3, 2, (12,), (3,), (1,), (1,), (1,)),
]
IMAGES = 5


def case(group, channels, outputs, image, kernel, stride, pad, dilation):
    """Products, and random images, grids, weights and bias for them."""
    axes = zip(image, kernel, stride, pad, dilation, strict=True)
    grid = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
    depth = channels // group * int(np.prod(kernel))
    where = None
    if kernel != (1,) * len(kernel):
        where = Columns(channels, image, grid, kernel, stride, pad, dilation)
    rng = np.random.default_rng(0)
    arrays = (
        rng.standard_normal((IMAGES, channels, int(np.prod(image)))),
        rng.standard_normal((IMAGES, outputs, int(np.prod(grid)))),
        rng.standard_normal((group, outputs // group, depth)),
        rng.standard_normal((outputs, 1)),
    )
    return Products((group, outputs // group, depth), grid, where), arrays


def everything(window):
    """What a Convolution and a Deconvolution compute of one case."""
    made, (images, grids, weight, bias) = case(*window)
    y, dx, dw = np.empty_like(grids), np.empty_like(images), np.ones_like(weight)
    made.forward(images, weight, y, bias)
    made.backward(images, grids, weight, weight_diff=dw, to_images=dx)
    image_bias = np.arange(images.shape[1])[:, None]
    deconvolved, dg, dw2 = np.empty_like(images), np.empty_like(grids), np.ones_like(weight)
    made.backward(None, grids, weight, to_images=deconvolved, bias=image_bias)
    made.backward(images, grids, weight, weight_diff=dw2, to_grids=dg)
    return y, dx, dw, deconvolved, dg, dw2


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("piece", [1, 100, 1000])
@pytest.mark.parametrize("wide", [1, 1 << 10])
def test_pieces_make_no_difference(window, piece, wide, monkeypatch):
    expected = everything(window)
    monkeypatch.setattr(convolution, "PIECE", piece)
    monkeypatch.setattr(convolution, "WIDE", wide)
    monkeypatch.setattr(convolution, "NARROW", 4)
    monkeypatch.setattr(convolution, "ENOUGH", 0)
    for ours, other in zip(everything(window), expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", WINDOWS)
def test_gradients_of_large_weights(window, monkeypatch):
    expected = everything(window)
    monkeypatch.setattr(convolution, "LARGE_WEIGHT", 0)
    for ours, other in zip(everything(window), expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_gradient_is_the_adjoint(window):
    made, (images, grids, weight, _) = case(*window)
    y, dx, dw = np.empty_like(grids), np.empty_like(images), np.zeros_like(weight)
    made.forward(images, weight, y, None)
    made.backward(images, grids, weight, weight_diff=dw, to_images=dx)
    assert np.vdot(y, grids) == pytest.approx(np.vdot(images, dx))
    assert np.vdot(y, grids) == pytest.approx(np.vdot(weight, dw))


@pytest.mark.parametrize("shape", [(3, 7, 900), (900, 7, 3), (1, 600, 600), (600, 600, 1), (5, 0, 4)])
@pytest.mark.parametrize("add", [False, True])
def test_product(shape, add, monkeypatch):
    monkeypatch.setattr(products, "ENOUGH", 0)
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b, out = rng.standard_normal((2, m, k)), rng.standard_normal((2, n, k)).swapaxes(1, 2), np.ones((2, m, n))
    products.product(HOST, a, b, out, add)
    np.testing.assert_allclose(out, a @ b + add, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (1, 70, 3, 50), (6, 1, 1, 1)])
@pytest.mark.parametrize("block", [1, 60, 1000])
def test_product_added_on_a_device(shape, block, monkeypatch):
    monkeypatch.setattr(products, "_BLOCK", block)
    s, m, k, n = shape
    rng = np.random.default_rng(0)
    a, b, out = rng.standard_normal((s, m, k)), rng.standard_normal((s, k, n)), np.ones((s, m, n))
    products._product_on_device(HOST, a, b, out, add=True)
    np.testing.assert_allclose(out, 1 + a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 3000, 700), (20, 3000, 700), (700, 40, 600), (300, 700, 300)])
@pytest.mark.parametrize("turned", [False, True])
def test_threads_leave_no_trace(shape, turned):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1, m, k), np.float32), rng.standard_normal((1, n, k), np.float32).swapaxes(1, 2)
    b = b if turned else np.ascontiguousarray(b)
    before, outs = parallel.num_threads(), []
    try:
        for threads in 1, 2, 5:
            parallel.set_num_threads(threads)
            outs.append(np.empty((1, m, n), np.float32))
            with parallel.one_blas_thread:
                products.product(HOST, a, b, outs[-1])
    finally:
        parallel.set_num_threads(before)
    assert outs[0].tobytes() == outs[1].tobytes() == outs[2].tobytes()
