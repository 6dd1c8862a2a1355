"""CUDA kernels, compiled for the host, against the loops that stand for them elsewhere, and both against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refcaffe.kernels import im2col_device, lrn_device, pooling_device, rows
from refcaffe.kernels.cuda import CudaKernels, on_cuda
from refcaffe.kernels.im2col import Columns
from refcaffe.kernels.pooling import Windows
from refcaffe.side import DEVICE
from tests.gpu.strict import COMPILER, DeviceArray, StrictModule, compile_for_host

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler for the CUDA kernels here")

DTYPES = [np.float32, np.float64]
_modules: dict[Any, Any] = {}


class StrictSide:
    """As much of a Side as kernels use."""

    gpu = True
    xp = StrictModule()


@pytest.fixture(autouse=True)
def host_compiled(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    def compile_once(kernels: CudaKernels, dtype: Any) -> Any:
        key = id(kernels), dtype
        if key not in _modules:
            _modules[key] = compile_for_host(kernels, dtype)
        return _modules[key]

    monkeypatch.setattr(CudaKernels, "compile", compile_once)
    for kernels in CudaKernels.every:
        monkeypatch.setattr(kernels, "_modules", {})


def numbers(seed: int, *shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def there(array: np.ndarray) -> DeviceArray:
    return DeviceArray(array.copy())


def garbage(shape: Any, dtype: Any) -> np.ndarray:
    return np.full(shape, 777, dtype)


def test_arrays_of_cuda_are_told_by_their_interface() -> None:
    assert on_cuda(there(np.zeros(1)))
    assert not on_cuda(np.zeros(1))


COLUMNS = [
    Columns(2, (5, 6), (3, 4), (3, 3), (1, 1), (0, 0), (1, 1)),
    Columns(1, (5, 6), (3, 3), (3, 2), (2, 3), (1, 2), (1, 1)),
    Columns(3, (7, 7), (3, 3), (3, 3), (2, 2), (1, 1), (2, 2)),
    Columns(2, (9,), (5,), (3,), (2,), (1,), (1,)),
    Columns(2, (3, 4, 5), (3, 4, 5), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    Columns(1, (2, 2), (1, 1), (5, 5), (1, 1), (2, 2), (1, 1)),  # the kernel is larger than the image
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", COLUMNS, ids=lambda where: f"{where.image_shape}-{where.shape}")
def test_columns(where: Columns, dtype: Any) -> None:
    image, columns = numbers(1, *where.image_shape, dtype=dtype), numbers(2, *where.shape, dtype=dtype)
    on_host, back_on_host = garbage(where.shape, dtype), garbage(where.image_shape, dtype)
    on_cuda, back_on_cuda = there(on_host), there(back_on_host)
    side: Any = StrictSide()
    im2col_device.im2col(DEVICE, where, image, on_host)
    im2col_device.im2col(side, where, there(image), on_cuda)
    im2col_device.col2im(DEVICE, where, columns, back_on_host)
    im2col_device.col2im(side, where, there(columns), back_on_cuda)
    np.testing.assert_array_equal(on_cuda.array, on_host)
    np.testing.assert_array_equal(back_on_cuda.array, back_on_host)
    # Each is the other's transpose.
    image, columns = image.astype(float), columns.astype(float)
    assert np.vdot(on_host, columns) == pytest.approx(np.vdot(image, back_on_host), rel=1e-5, abs=1e-5)


def lrn_scale_of_formula(x: np.ndarray, size: int, k: float, alpha: float) -> np.ndarray:
    half, channels = (size - 1) // 2, x.shape[1]
    near = [slice(max(c - half, 0), c + size - half) for c in range(channels)]
    return np.stack([k + alpha * (x[:, some] ** 2).sum(1) for some in near], 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("channels", "size"), [(1, 3), (4, 3), (7, 5), (3, 5)])
def test_normalization_across_channels(channels: int, size: int, dtype: Any) -> None:
    k, alpha, factor = dtype(2), dtype(0.3), dtype(0.7)
    x, y, dy, power = (numbers(seed, 2, channels, 6, dtype=dtype) for seed in range(4))
    scale, dx = garbage(x.shape, dtype), garbage(x.shape, dtype)
    cuda_scale, cuda_dx = there(scale), there(dx)
    lrn_device.scale(x, size, k, alpha, scale)
    lrn_device.cuda_scale(there(x), size, k, alpha, cuda_scale)
    np.testing.assert_array_equal(cuda_scale.array, scale)
    tolerance = 1e-4 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(scale, lrn_scale_of_formula(x.astype(float), size, k, alpha), rtol=tolerance)
    lrn_device.backward(x, y, dy, scale, power, size, factor, dx)
    arrays = (there(array) for array in (x, y, dy, scale, power))
    lrn_device.cuda_backward(*arrays, size, factor, cuda_dx)  # type: ignore[call-arg]
    np.testing.assert_array_equal(cuda_dx.array, dx)


def windows(dtype: Any) -> list[Windows]:
    return [
        Windows((5, 6), (2, 3), (3, 2), (2, 2), (0, 0), dtype),
        Windows((5, 6), (3, 4), (3, 3), (2, 2), (1, 1), dtype),
        Windows((4, 4), (1, 1), (4, 4), (1, 1), (0, 0), dtype),
        Windows((4, 5), (5, 6), (2, 2), (1, 1), (1, 1), dtype),
    ]


def planes(seed: int, some: Windows, top: bool, dtype: Any) -> np.ndarray:
    height, width, rows, columns = some.geometry[:4]
    return numbers(seed, 3, *((rows, columns) if top else (height, width)), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", range(4))
def test_average_pooling(number: int, dtype: Any) -> None:
    some = windows(dtype)[number]
    x, dy = planes(1, some, False, dtype), planes(2, some, True, dtype)
    y, dx = there(garbage(dy.shape, dtype)), there(garbage(x.shape, dtype))
    pooling_device.launch("average_forward", some, y, there(x), y)
    pooling_device.launch("average_backward", some, dx, there(dy), dx)
    forward, backward = np.zeros(dy.shape), np.zeros(x.shape)
    for i, (h0, h1) in enumerate(some.rows):
        for j, (w0, w1) in enumerate(some.columns):
            forward[:, i, j] = x[:, h0:h1, w0:w1].astype(float).sum((1, 2)) / some.divisors[i, j]
            backward[:, h0:h1, w0:w1] += (dy[:, i, j].astype(float) / some.divisors[i, j])[:, None, None]
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    np.testing.assert_allclose(y.array, forward, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(dx.array, backward, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mask_type", [np.int32, None])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", range(4))
def test_max_pooling(number: int, dtype: Any, mask_type: Any) -> None:
    some = windows(dtype)[number]
    name = "" if mask_type else "_top"
    x, dy = np.round(planes(1, some, False, dtype)), planes(2, some, True, dtype)  # with ties
    x[0, 1, 2] = np.nan
    y, mask = there(garbage(dy.shape, dtype)), there(garbage(dy.shape, mask_type or dtype))
    dx = there(garbage(x.shape, dtype))
    pooling_device.launch(f"max_forward{name}", some, y, there(x), y, mask)
    pooling_device.launch(f"max_backward{name}", some, dx, there(dy), mask, dx)
    width = some.geometry[1]
    backward = np.zeros(x.shape, dtype)
    for i, (h0, h1) in enumerate(some.rows):
        for j, (w0, w1) in enumerate(some.columns):
            for n in range(3):
                seen = np.where(np.isnan(x[n]), -np.inf, x[n])[h0:h1, w0:w1]
                if seen.max() == -np.inf:
                    assert mask.array[n, i, j] == -1
                    continue
                h, w = np.unravel_index(seen.argmax(), seen.shape)
                assert mask.array[n, i, j] == (h0 + h) * width + w0 + w
                assert y.array[n, i, j] == seen.max()
                backward[n, h0 + h, w0 + w] += dy[n, i, j]
    np.testing.assert_allclose(dx.array, backward, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [0, 2])  # it has no padding
def test_stochastic_pooling(number: int, dtype: Any) -> None:
    some = windows(dtype)[number]
    x, dy = np.abs(planes(1, some, False, dtype)), planes(2, some, True, dtype)
    draws = np.random.default_rng(3).uniform(0.01, 1, dy.shape).astype(dtype)
    chosen, y, dx, tested = draws.copy(), *(garbage(shape, dtype) for shape in (dy.shape, x.shape, dy.shape))
    on_cuda = [there(array) for array in (chosen, y, dx, tested)]
    pooling_device.stochastic_train(some, x, chosen, y)
    pooling_device.stochastic_backward(some, dy, chosen, dx)
    pooling_device.stochastic_test(some, x, tested)
    pooling_device.launch("stochastic_train", some, on_cuda[1], there(x), on_cuda[0], on_cuda[1])
    pooling_device.launch("stochastic_backward", some, on_cuda[2], there(dy), on_cuda[0], on_cuda[2])
    pooling_device.launch("stochastic_test", some, on_cuda[3], there(x), on_cuda[3])
    for found, array in zip(on_cuda, (chosen, y, dx, tested), strict=True):
        np.testing.assert_array_equal(found.array, array)
    at = chosen.astype(int)
    np.testing.assert_array_equal(y, x.reshape(-1)[at])
    np.testing.assert_allclose(dx.sum(), dy.sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows(dtype: Any) -> None:
    index, given = np.array([2, 0, 2, 2, 3]), np.round(numbers(1, 5, 3, dtype=dtype) * 8)
    target = np.ones((4, 3), dtype)
    on_cuda, side = there(target), StrictSide()
    rows.add_rows(DEVICE, index, given, target)
    rows.add_rows(side, there(index), there(given), on_cuda)  # type: ignore[arg-type]
    np.testing.assert_array_equal(on_cuda.array, target)
    expected = np.ones((4, 3), dtype)
    np.add.at(expected, index, given)
    np.testing.assert_array_equal(target, expected)

    order, begins, counts = (np.array(values, dtype) for values in ([1, 0, 2, 3, 4], [0, -1, 1, 4], [1, 0, 3, 1]))
    out = garbage((4, 3), dtype)
    on_cuda = there(out)
    rows.sum_rows(DEVICE, order, begins, counts, given, out)
    rows.sum_rows(side, *map(there, (order, begins, counts, given)), on_cuda)  # type: ignore[arg-type]
    np.testing.assert_array_equal(on_cuda.array, out)
    np.testing.assert_array_equal(out, [given[1], np.zeros(3), given[0] + given[2] + given[3], given[4]])


def test_no_elements_are_no_launch() -> None:
    def never(*args: Any) -> Any:
        raise AssertionError

    kernels = CudaKernels("")
    CudaKernels.every.remove(kernels)
    kernels.compile = never  # type: ignore[method-assign]
    kernels.launch("nothing", 0, np.dtype(np.float32))
