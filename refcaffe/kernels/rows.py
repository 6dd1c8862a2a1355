"""Rows of a matrix, by index."""

from __future__ import annotations

from typing import Any

from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import CudaKernels, on_cuda
from refcaffe.side import Side

_CUDA = CudaKernels("""
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 600
#error "atomic addition of doubles needs compute capability 6.0"
#endif
KERNEL add_rows(long long n, const long long* index, const T* rows, int length, T* target) {
  LOOP(at, n) { atomicAdd(target + index[at / length] * length + at % length, rows[at]); }
}

KERNEL sum_rows(long long n, const T* order, const T* begins, const T* counts, const T* rows, int length, T* out) {
  LOOP(at, n) {
    const int begin = begins[at / length], count = counts[at / length];
    T sum = 0;
    for (int i = begin; i < begin + count; ++i) sum += rows[(long long)order[i] * length + at % length];
    out[at] = sum;
  }
}
""")


def _plain_add_rows(index: Any, rows: Any, target: Any) -> None:
    for n, row in zip(index.tolist(), rows, strict=True):
        target[n] += row


def _plain_sum_rows(order: Any, begins: Any, counts: Any, rows: Any, out: Any) -> None:
    out.fill(0)
    for total, begin, count in zip(out, begins.astype(int), counts.astype(int), strict=True):
        for row in rows[order[begin : begin + count].astype(int)]:
            total += row


@compiled(plain=_plain_add_rows)
def _add_rows(index: Any, rows: Any, target: Any) -> None:
    for n in range(len(index)):
        for j in range(rows.shape[1]):
            target[index[n], j] += rows[n, j]


@compiled(plain=_plain_sum_rows)
def _sum_rows(order: Any, begins: Any, counts: Any, rows: Any, out: Any) -> None:
    for n in range(len(out)):
        out[n] = 0
        for i in range(int(begins[n]), int(begins[n]) + int(counts[n])):
            for j in range(out.shape[1]):
                out[n, j] += rows[int(order[i]), j]


def add_rows(side: Side, index: Any, rows: Any, target: Any) -> None:
    """``target[index[n]] += rows[n]``, one n after the other, on CUDA in any order.

    Matrices, and int64 numbers in range.
    """
    if on_cuda(target):
        _CUDA.launch("add_rows", rows.size, rows.dtype, index, rows, rows.shape[1], target)
    else:
        _add_rows(index, rows, target)


def sum_rows(side: Side, order: Any, begins: Any, counts: Any, rows: Any, out: Any) -> None:
    """``out[n]`` = the sum, in order, of the rows that ``order`` names in ``counts[n]`` entries from ``begins[n]`` on.

    Matrices; the three tables are of their type.
    """
    if on_cuda(out):
        _CUDA.launch("sum_rows", out.size, out.dtype, order, begins, counts, rows, out.shape[1], out)
    else:
        _sum_rows(order, begins, counts, rows, out)
