"""The matrix product as compiled code: blocks of sums held in a processor's vector registers.

Importing this imports Numba; ``products.multiply`` does so when it is first called. A loop in Python says nothing of
registers, and a compiler keeps few of its sums there; so the innermost loop, and the transposition of a small square,
are written as LLVM's instructions on whole vectors. Everything is in this one file since Numba's cache on disk asks
for the date of one file.

Each sum is one chain of fused multiply-adds (where the processor has them) in the order of the depth, cut into parts
of at most DEPTH that are added up one after the other: nearly the sums of the recordings' BLAS (docs/semantics), whose
parts are 320 and which makes two chains in some blocks. Half of that alone brings a whole net no nearer to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import binding, ir
from numba import extending, njit, types
from numba.core import cgutils
from numba.np.numpy_support import from_dtype

intrinsic: Any = extending.intrinsic  # what it makes of a function is called with one argument less

_AVX512 = bool(binding.get_host_cpu_features().get("avx512f"))
BYTES = 64 if _AVX512 else 32  # of a vector
ROWS = 14 if _AVX512 else 6  # of a block at most: its sums and a few vectors more fill the registers
VECTORS = 2  # side by side in a block
APART = BYTES // 4  # elements from one column of a packed panel to the next; at least ROWS
DEPTH = 384
TOGETHER = 24 * ROWS  # rows that are packed at a time: with DEPTH, what stays in a core's second cache
MANY = 8 * ROWS  # rows for which copying a factor is worth its while
TURN = 8  # a part's depth is a multiple of it, if it is not the last


class _Code:
    """Writes instructions for vectors of one type. Places count elements; they are integers or LLVM's values."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.context, self.builder = context, builder
        self.itemsize = dtype.bitwidth // 8
        self.lanes = BYTES // self.itemsize
        self.index = context.get_value_type(types.intp)
        self.vector = ir.VectorType(context.get_value_type(dtype), self.lanes)
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def number(self, value: int) -> Any:
        return ir.Constant(self.index, value)

    def pointer(self, address: Any) -> Any:
        return self.builder.inttoptr(address, self.vector.element.as_pointer())

    def at(self, address: Any, place: Any) -> Any:
        return self.builder.gep(address, [self.number(place) if isinstance(place, int) else place], inbounds=True)

    def times(self, place: Any, count: int) -> Any:
        return self.builder.mul(place, self.number(count))

    def load(self, address: Any) -> Any:
        return self.builder.load(self._of_vectors(address), align=1)

    def store(self, vector: Any, address: Any) -> None:
        self.builder.store(vector, self._of_vectors(address), align=1)

    def _of_vectors(self, address: Any) -> Any:
        return self.builder.bitcast(address, self.vector.as_pointer())

    def chosen(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """The vector of those lanes of ``a`` and, counted on, of ``b``."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def spread(self, address: Any) -> Any:
        """The number there in every lane."""
        anything = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(anything, self.builder.load(address), ir.Constant(ir.IntType(32), 0))
        return self.chosen(first, anything, [0] * self.lanes)

    def prefetch(self, address: Any, near: bool) -> None:
        """Ask for the cache line there, into the first cache or the second; nothing happens if there is no memory."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        given = [
            self.builder.bitcast(address, byte),
            *(ir.Constant(number, value) for value in (0, 3 if near else 2, 1)),
        ]
        self.builder.call(cgutils.get_or_insert_function(self.builder.module, function, "llvm.prefetch.p0i8"), given)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, fused where the processor has that."""
        name = f"llvm.fmuladd.v{self.lanes}f{8 * self.itemsize}"
        function = ir.FunctionType(self.vector, [self.vector] * 3)
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, function, name), [a, b, c])


@intrinsic
def _multiply_block(_, dtype, a, b, b_row, depth, bias, out, row, rows, vectors, add):  # type: ignore[no-untyped-def]
    """out (rows, vectors) = aᵀ · b + bias, or += if ``add``; ``a`` is (depth, rows), ``b`` (depth, vectors), depth > 0.

    Columns of ``a`` are APART elements apart, rows of ``b`` ``b_row`` and those of ``out`` ``row``; ``bias`` has a
    number for each row. ``a``, ``b``, ``bias`` and ``out`` are addresses.
    """
    i = types.intp
    signature = types.void(dtype, i, i, i, i, i, i, i, i, i, types.boolean)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _Code(context, builder, signature.args[0].dtype)
        _, a, b, b_row, depth, bias, out, row, rows, vectors, add = args
        a, b, bias, out = (code.pointer(address) for address in (a, b, bias, out))
        end = builder.append_basic_block("end")
        choice = builder.switch(builder.add(code.times(rows, VECTORS + 1), vectors), end)
        for height in range(1, ROWS + 1):
            for width in range(1, VECTORS + 1):
                case = builder.append_basic_block(f"block_{height}_{width}")
                choice.add_case(code.number(height * (VECTORS + 1) + width), case)
                builder.position_at_end(case)
                sums = _emit_sums(code, (height, width), a, b, b_row, depth)
                _emit_write(code, sums, bias, out, row, add)
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return signature, emit


def _emit_sums(code: _Code, shape: tuple[int, int], a: Any, b: Any, b_row: Any, depth: Any) -> list[list[Any]]:
    """The loop over the depth; ``shape``: rows and vectors of the sums, all of which are in registers."""
    builder = code.builder
    before, loop, after = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("sums")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(code.index)
    so_far = [[builder.phi(code.vector) for _ in range(shape[1])] for _ in range(shape[0])]
    a, b = code.at(a, code.times(k, APART)), code.at(b, builder.mul(k, b_row))
    columns = [code.load(code.at(b, v * code.lanes)) for v in range(shape[1])]
    for v in range(shape[1]):
        code.prefetch(code.at(b, (VECTORS + v) * code.lanes), near=True)
    sums: list[list[Any]] = []
    for i, row in enumerate(so_far):
        factor = code.spread(code.at(a, i))
        sums.append([code.multiply_add(factor, *pair) for pair in zip(columns, row, strict=True)])
        for phi, total in zip(row, sums[-1], strict=True):
            phi.add_incoming(code.zero, before)
            phi.add_incoming(total, loop)
    following = builder.add(k, code.number(1))
    k.add_incoming(code.number(0), before)
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    return sums


def _emit_write(code: _Code, sums: list[list[Any]], bias: Any, out: Any, row: Any, add: Any) -> None:
    with code.builder.if_else(add) as (added, written):
        for branch, adds in ((added, True), (written, False)):
            with branch:
                for i, vectors in enumerate(sums):
                    last = code.spread(code.at(bias, i))
                    for v, total in enumerate(vectors):
                        address = code.at(code.at(out, code.times(row, i)), v * code.lanes)
                        if adds:
                            total = code.builder.fadd(code.load(address), total)
                        code.store(code.builder.fadd(total, last), address)


@intrinsic
def _turn_block(_, dtype, a, a_row, rows, out, row):  # type: ignore[no-untyped-def]
    """out = a transposed: as many rows of a vector each as it has lanes; from ``rows`` on the last one again.

    ``a`` and ``out`` are addresses.
    """
    i = types.intp
    signature = types.void(dtype, i, i, i, i, i)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _Code(context, builder, signature.args[0].dtype)
        _, a, a_row, rows, out, row = args
        a, out = code.pointer(a), code.pointer(out)
        last = builder.sub(rows, code.number(1))
        vectors = []
        for n in range(code.lanes):
            place = builder.select(builder.icmp_signed("<", code.number(n), last), code.number(n), last)
            vectors.append(code.load(code.at(a, builder.mul(a_row, place))))
            following = builder.mul(a_row, code.number(VECTORS * code.lanes + n))
            code.prefetch(code.at(a, following), near=False)
        step = code.lanes // 2
        while step:  # squares of that size change places across the diagonal
            for n in range(code.lanes):
                if not n & step:
                    vectors[n], vectors[n + step] = _emit_exchange(code, vectors[n], vectors[n + step], step)
            step //= 2
        for n, vector in enumerate(vectors):
            code.store(vector, code.at(out, code.times(row, n)))
        return context.get_dummy_value()

    return signature, emit


def _emit_exchange(code: _Code, above: Any, below: Any, step: int) -> tuple[Any, Any]:
    lanes = range(code.lanes)
    upper = [code.lanes + lane - step if lane & step else lane for lane in lanes]
    lower = [code.lanes + lane if lane & step else lane + step for lane in lanes]
    return code.chosen(above, below, upper), code.chosen(above, below, lower)


@intrinsic
def _copy_vector(_, dtype, a, out):  # type: ignore[no-untyped-def]
    """As many elements as a vector has lanes, from one address to another."""
    signature = types.void(dtype, types.intp, types.intp)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _Code(context, builder, signature.args[0].dtype)
        code.store(code.load(code.pointer(args[1])), code.pointer(args[2]))
        return context.get_dummy_value()

    return signature, emit


@njit(nogil=True, error_model="numpy")
def _pack(a: Any, first: int, rows: int, start: int, depth: int, out: Any, at: int, apart: int) -> None:
    """out[at + k * apart + r] = a[first + r, start + k]; behind the last row anything, up to a whole vector."""
    size = a.itemsize
    lanes = BYTES // size
    row, step = a.strides
    for r in range(0, rows, lanes):
        some = min(lanes, rows - r)
        source = a.ctypes.data + (first + r) * row + start * step
        target = out.ctypes.data + (at + r) * size
        if step == size and depth >= lanes:
            for k in range(0, depth + lanes - 1, lanes):
                k = min(k, depth - lanes)
                _turn_block(out, source + k * size, row // size, some, target + k * apart * size, apart)
        elif row == size and first + r + lanes <= a.shape[0]:
            for k in range(depth):
                _copy_vector(out, source + k * step, target + k * apart * size)
        else:
            for k in range(depth):
                for i in range(r, r + some):
                    out[at + k * apart + i] = a[first + i, start + k]


@njit(nogil=True, error_model="numpy")
def _copy(source: Any, target: Any) -> None:
    """target = source, matrices of one shape."""
    size = target.itemsize
    rows, columns = target.shape
    lanes = BYTES // size
    for i in range(rows):
        if columns >= lanes and source.strides[1] == target.strides[1] == size:
            start, to = source.ctypes.data + i * source.strides[0], target.ctypes.data + i * target.strides[0]
            for j in range(0, columns + lanes - 1, lanes):
                j = min(j, columns - lanes)
                _copy_vector(target, start + j * size, to + j * size)
        else:
            for j in range(columns):
                target[i, j] = source[i, j]


@njit(nogil=True, error_model="numpy")
def _run(first: int, columns: int, places: int) -> Any:
    """Which image and place column ``first`` is, and how many of the ``columns`` from there on are that image's."""
    place = first % places
    return first // places, place, min(columns, places - place)


@njit(nogil=True, error_model="numpy")
def _gather(b: Any, first: int, out: Any) -> None:
    """out = columns of ``b`` (rows, images, places) from ``first`` on, of one image or several."""
    j, columns = 0, out.shape[1]
    while j < columns:
        image, place, some = _run(first + j, columns - j, b.shape[2])
        _copy(b[:, image, place : place + some], out[:, j : j + some])
        j += some


@njit(nogil=True, error_model="numpy")
def _scatter(block: Any, out: Any, first: int) -> None:
    """Those columns of ``out`` (rows, images, places) = block."""
    j, columns = 0, block.shape[1]
    while j < columns:
        image, place, some = _run(first + j, columns - j, out.shape[2])
        _copy(block[:, j : j + some], out[:, image, place : place + some])
        j += some


@njit(nogil=True, error_model="numpy")
def _part(left: int) -> int:
    """How much of a depth is summed up next."""
    if left >= 2 * DEPTH:
        return DEPTH
    return (left // 2 + TURN - 1) // TURN * TURN if left > DEPTH else left


@njit(nogil=True, error_model="numpy")
def _panel_of(b: Any, first: int, columns: int, packs: bool, panel: Any) -> Any:
    """Where columns of ``b`` (depth, images, places) lie from ``first`` on, and how many elements from row to row.

    They are copied into ``panel`` if the whole panel does not lie side by side, or if they are to be packed.
    """
    depth, width = len(b), VECTORS * (BYTES // b.itemsize)
    image, place, run = _run(first, columns, b.shape[2])
    if run < columns:
        _gather(b, first, panel.reshape(-1, width)[:depth, :columns])
    elif packs or columns < width or b.strides[2] != b.itemsize:
        _pack(b[:, image].T, place, columns, 0, depth, panel, 0, width)
    else:
        return b.ctypes.data + image * b.strides[1] + place * b.itemsize, b.strides[0] // b.itemsize
    return panel.ctypes.data, width


@njit(nogil=True, error_model="numpy")
def _multiply_panel(
    panels: Any, height: int, b: Any, depth: int, bias: Any, out: Any, first: int, columns: int, add: bool, rest: Any
) -> None:
    """Columns of ``out`` (rows, images, places) from ``first`` on = panels of ``height`` rows · a panel, or +=.

    ``b``: what ``_panel_of`` says of the latter. ``rest`` is room for a block.
    """
    size, rows = out.itemsize, len(out)
    lanes = BYTES // size
    vectors, width = (columns + lanes - 1) // lanes, VECTORS * lanes
    image, place, run = _run(first, columns, out.shape[2])
    target = out.ctypes.data + image * out.strides[1] + place * size
    whole = run == width and out.strides[2] == size
    for i in range(0, rows, height):
        high = min(height, rows - i)
        to, row = target + i * out.strides[0], out.strides[0] // size
        if not whole:
            to, row = rest.ctypes.data, width
            if add:
                _gather(out[i : i + high], first, rest[:high, :columns])
        packed, last = panels.ctypes.data + i // height * depth * APART * size, bias.ctypes.data + i * size
        _multiply_block(out, packed, b[0], b[1], depth, last, to, row, high, vectors, add)
        if not whole:
            _scatter(rest[:high, :columns], out[i : i + high], first)


@njit(nogil=True, error_model="numpy")
def _multiply(a: Any, b: Any, bias: Any, out: Any, add: bool) -> None:
    """As ``multiply``, for one matrix."""
    rows, depth = a.shape
    columns, width = out.shape[1] * out.shape[2], VECTORS * (BYTES // out.itemsize)
    panels = np.empty((min(rows, TOGETHER) + ROWS - 1) // ROWS * min(depth, DEPTH) * APART, out.dtype)
    panel = np.empty(min(depth, DEPTH) * width, out.dtype)
    biases, rest = np.empty(min(rows, TOGETHER), out.dtype), np.empty((ROWS, width), out.dtype)
    for top in range(0, rows, TOGETHER):
        together = min(TOGETHER, rows - top)
        count = (together + ROWS - 1) // ROWS
        height = (together + count - 1) // count
        to = out[top : top + together]
        start = 0
        while start < depth:
            part = _part(depth - start)
            biases[:] = 0
            if len(bias) and start + part == depth:
                biases[:together] = bias[top : top + together]
            for i in range(0, together, height):
                _pack(a, top + i, min(height, together - i), start, part, panels, i // height * part * APART, APART)
            for j in range(0, columns, width):
                some = min(width, columns - j)
                factor = _panel_of(b[start : start + part], j, some, together > MANY, panel)
                _multiply_panel(panels, height, factor, part, biases, to, j, some, add or start > 0, rest)
            start += part


def _multiply_stack(a: Any, b: Any, bias: Any, out: Any, add: bool) -> None:
    for s in range(len(out)):
        _multiply(a[s], b[s], bias[s], out[s], add)


Multiply = Callable[[Any, Any, Any, Any, bool], None]


def multiply_compiled(dtype: Any) -> Multiply:
    """The function of a, b, bias, out and add that does out = a · b + bias, or += if ``add``, for floats or doubles.

    Shapes are (S, M, K), (S, K, n, p), (S, M) or (S, 0) for no bias, (S, M, N, P), anywhere in memory, and n p = N P;
    nothing but the bias is empty.
    """
    real = from_dtype(dtype)
    given = [types.Array(real, axes, "A", readonly=True, aligned=False) for axes in (3, 4, 2)]
    signature = types.void(*given, types.Array(real, 4, "A", aligned=False), types.boolean)
    return cast(Multiply, njit([signature], cache=True, nogil=True, error_model="numpy")(_multiply_stack))
