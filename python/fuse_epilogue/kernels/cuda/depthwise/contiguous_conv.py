"""A depthwise convolution along the rows of memory, for CUDA.

A thread computes vectors of one row. It loads the chunks of x, one vector each, in which the
windows of its columns lie: the chunk in the same place, and those beside it. They are loaded by the
neighbouring threads as well, at the same time, so that they come from the cache of the
multiprocessor. All loads come first, so that they are under way together.

    chunk -1       chunk 0        chunk 1
    x[b-4 : b]     x[b : b+4]     x[b+4 : b+8]      ->      y[b : b+4]

Vectors in memory must begin at a multiple of their size. Where the rows of x and y are equally long
but not made of whole vectors, as with an odd or a symbolic W, vectors begin where those of memory
do: the first of a row begins before it, and the last ends after it.

    row r: ..|x x x x|x x . .            row r + 1: ..|. . x x|x x x x|..

What lies outside of the row is a chunk, or lanes of one, with the padding's value: only threads at
a border look at single elements, and there is no padded copy. Results of such lanes are not stored;
where one could end the program, as an integer divided by such a sum, it is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, IfThenElse

from ....recognize.defined import analyzer_of, guarded, is_inside, may_be_discarded
from ....rewrites.fused_conv import FusedConv
from ....tir.affine import as_constant
from ....tir.types import bytes_of
from ....tir.walk import loads, substitute, uses
from ..launch import THREADS, axis, ceil_div, enough, in_threads, product
from .code import computed, copied, is_compact, lanes_of, outside, unrolled

# Bytes of chunks that a thread holds.
_MOST_BYTES = 16 * 8
# Vectors of a thread: more loads under way at once, and the filter loaded less often.
_VECTORS = 2


@dataclass(frozen=True)
class Rows:
    """Layout of a convolution along rows.

    - `lanes`: elements of a vector.
    - `shifted`: whether vectors begin where those of memory do, and not with the rows.
    - `first`, `last`: the chunks of x that a vector needs, counted from the one in its own place.
    """

    lanes: int
    shifted: bool
    first: int
    last: int


def find_rows(fused: FusedConv) -> Rows | None:
    """Return how to compute a convolution along rows; None if that is not possible or not good."""
    conv = fused.conv
    *others, last = fused.indices
    possible = (
        conv.stride == 1
        and conv.axis == len(conv.data.indices) - 1
        and last.same_as(conv.column.var)
        and not any(uses(index, conv.column.var) for index in others)
        and is_compact(fused.buffer)
        and is_compact(conv.data.source)
    )
    if not possible:
        return None
    lanes = _aligned(fused)
    shifted = lanes < lanes_of(fused) and _alike(fused)
    if shifted:
        lanes = lanes_of(fused)
        while isinstance(conv.columns, int) and lanes > max(conv.columns, 1):
            lanes //= 2
    offsets = conv.start, conv.start + (conv.taps - 1) * conv.dilation
    rows = Rows(lanes, shifted and lanes > 1, offsets[0] // lanes, -(-offsets[1] // lanes))
    held = (rows.last - rows.first + 1) * lanes * bytes_of(conv.data.source.ty.dtype)
    return rows if lanes > 1 and held <= _MOST_BYTES else None


def _aligned(fused: FusedConv) -> int:
    """Return the lanes of the largest vector of which the rows of x and y are made."""
    lanes = lanes_of(fused)
    for size in (fused.conv.width, fused.conv.columns):
        while lanes > 1 and not (isinstance(size, int) and size % lanes == 0):
            lanes //= 2
    return lanes


def _alike(fused: FusedConv) -> bool:
    """Whether an element of y lies in y where the one of x at the same column lies in x."""
    x, y = fused.conv.data, fused.buffer
    equal = Analyzer().can_prove_equal
    # A tail names the only element of an axis by its number, a convolution perhaps by the axis.
    once = {
        each.var: each.dom.min for each in fused.conv.outer if as_constant(each.dom.extent) == 1
    }
    return (
        len(x.indices) == len(fused.indices)
        and all(equal(a, b) for a, b in zip(x.source.ty.shape, y.ty.shape, strict=True))
        and all(
            equal(substitute(a, once), substitute(b, once))
            for a, b in zip(x.indices[:-1], fused.indices[:-1], strict=True)
        )
    )


def in_rows(
    func: tirx.PrimFunc,
    fused: FusedConv,
    rows: Rows,
    vectors: int | None = None,
    most: int = THREADS,
) -> tirx.PrimFunc:
    """Return a function that computes a fused convolution along its rows.

    - `func`: the function with the convolution and nothing else.
    - `rows`: from :func:`find_rows`.
    - `vectors`: vectors of a thread, at most as many as a row has; chosen by the size of the result
      if None.
    - `most`: threads of a block, at most.
    """
    return _Row(fused, rows, vectors).function(func, most)


def vectors_of(fused: FusedConv, rows: Rows) -> Any:
    """Return the vectors of a row of the result: an int or an expression."""
    # A row that does not begin with a vector may have one more.
    return ceil_div(fused.conv.columns + (rows.lanes - 1 if rows.shifted else 0), rows.lanes)


def _may_be_discarded(fused: FusedConv) -> bool:
    """Whether all that is computed can be computed for any column and any x, but for loads there.

    A load that does not depend on the column may depend on a guard that does.
    """
    analyzer = analyzer_of(fused.conv.outer)
    column = fused.conv.column.var
    for expr in (fused.start, fused.result):
        others = [load for load in loads(expr) if uses(expr, column) and not uses(load, column)]
        if any(guarded(load, expr) and not is_inside(load, analyzer) for load in others):
            return False

    def loaded(load: Any) -> Any:
        return tirx.Var("loaded", load.ty)

    exprs = (fused.start, fused.conv.term, fused.result)
    values = (tvm_ffi.structural_map(expr, (TensorLoad, loaded), order="pre") for expr in exprs)
    return all(may_be_discarded(value, analyzer) for value in values)


def _guarded(fused: FusedConv) -> FusedConv:
    """Return the same where the epilogue reads nothing in columns outside of the result."""
    column = fused.conv.column.var
    inside = tirx.all(column >= 0, column < fused.conv.columns)

    def within(load: Any) -> Any:
        if not uses(load, column):
            return load
        return tirx.if_then_else(inside, load, tirx.const(0, load.ty.dtype))

    start, result = (
        tvm_ffi.structural_map(expr, (TensorLoad, within)) for expr in (fused.start, fused.result)
    )
    return replace(fused, start=start, result=result)


class _Row:
    """Writes the code of a thread."""

    def __init__(self, fused: FusedConv, rows: Rows, vectors: int | None) -> None:
        conv = fused.conv
        # Lanes outside of the row are computed, too, or a condition is in front of each.
        self.total = not rows.shifted or _may_be_discarded(fused)
        self.fused = _guarded(fused) if rows.shifted and self.total else fused
        self.conv, self.rows, self.lanes = conv, rows, rows.lanes
        self.dtype = str(conv.column.var.ty.dtype)
        count = vectors_of(fused, rows)
        outer = product([each.dom.extent for each in conv.outer])
        chunks = rows.last - rows.first + 1
        self.vectors = vectors or _VECTORS
        if vectors is None and (chunks > 4 or not enough(outer * ceil_div(count, _VECTORS))):
            self.vectors = 1
        if count == 1:
            self.vectors = 1
        # Vectors of a thread are as far apart as possible: neighbours load what lies side by side.
        self.apart = ceil_div(count, self.vectors)
        self.part = axis("part", self.apart, self.dtype)
        self.chunks = tirx.decl_buffer(
            (self.vectors, chunks * self.lanes), conv.data.source.ty.dtype, "chunks", scope="local"
        )
        self.begin = tirx.decl_buffer((self.vectors,), self.dtype, "begin", scope="local")
        self.column = tirx.decl_buffer((self.vectors,), self.dtype, "column", scope="local")
        self.sums = tirx.decl_buffer((self.lanes,), conv.out.ty.dtype, "sums", scope="local")
        self.out = tirx.decl_buffer((self.lanes,), fused.buffer.ty.dtype, "out", scope="local")

    def function(self, func: tirx.PrimFunc, most: int) -> tirx.PrimFunc:
        """Return the function, with at most n threads in a block."""
        columns, code = self._begin()
        for vector, first in enumerate(columns):
            for place in range(self.rows.first, self.rows.last + 1):
                code.append(self._load(vector, place, first + place * self.lanes))
        for vector, first in enumerate(columns):
            result = tirx.SeqStmt([*self._computed(vector, first), self._store(vector, first)])
            code.append(IfThenElse(first < self.conv.columns, result, None))
        local = [self.chunks, self.sums, self.out, *[self.column, self.begin] * self.rows.shifted]
        axes = [*self.conv.outer, self.part]
        return in_threads(func, self.fused, axes, tirx.SeqStmt(code), local, most)

    def _begin(self) -> tuple[list[Any], list[Any]]:
        """Return the first column of each vector, and the code that computes it.

        With `shifted` it may lie before the row. Where vectors begin is kept in memory of the
        thread, for nvcc registers: TVM would put expressions in the place of variables, and then
        not see any more that they are multiples of the lanes.
        """
        parts = [self.part.var + vector * self.apart for vector in range(self.vectors)]
        if not self.rows.shifted:
            return [part * self.lanes for part in parts], []
        row: Any = tirx.const(0, self.dtype)
        shape = self.fused.buffer.ty.shape
        for index, size in zip(self.fused.indices[:-1], shape[:-1], strict=True):
            row = row * size + index
        row = row * shape[-1]
        first = tirx.shift_right(row, tirx.const(self.lanes.bit_length() - 1, self.dtype))
        code = []
        for vector, part in enumerate(parts):
            code.append(BufferStore(self.begin, first + part, [vector]))
            begin = self.begin[vector] * self.lanes
            code.append(BufferStore(self.column, begin - row, [vector]))
        return [self.column[vector] for vector in range(self.vectors)], code

    def _in_memory(self, buffer: Any, indices: Any, vector: int, place: int, column: Any) -> Any:
        """Return a function that gives the element of x or y in a lane of a whole vector."""

        def element(lane: Any) -> Any:
            if not self.rows.shifted:
                return buffer, [*indices[:-1], column + lane]
            # Counted from the beginning of the buffer, where vectors are aligned.
            at = (self.begin[vector] + place) * self.lanes + lane
            return buffer, [tirx.const(0, self.dtype)] * (len(indices) - 1) + [at]

        return element

    # ---- Chunks of x -----------------------------------------------------------------------------

    def _load(self, vector: int, place: int, column: Any) -> Any:
        """Return the code that loads the chunk from a column of x on."""
        lanes, width = self.lanes, self.conv.width
        start = (place - self.rows.first) * lanes
        data = self.conv.data
        element = self._in_memory(data.source, data.indices, vector, place, column)

        def loaded(lane: Any) -> tuple[Any, Sequence[Any], Any]:
            buffer, indices = element(lane)
            return self.chunks, [vector, start + lane], buffer[tuple(indices)]

        whole = copied(lanes, self.dtype, loaded)
        nothing = unrolled(
            "lane",
            lanes,
            self.dtype,
            lambda lane: BufferStore(self.chunks, outside(self.conv), [vector, start + lane]),
        )
        if not self.rows.shifted:
            return IfThenElse(tirx.all(column >= 0, column < width), whole, nothing)

        def one(lane: Any) -> Any:
            inside = self._is_inside(column + lane, width)
            x = data.source[(*data.indices[:-1], column + lane)]
            value = tirx.if_then_else(inside, x, outside(self.conv))
            return BufferStore(self.chunks, value, [vector, start + lane])

        inside = tirx.all(column >= 0, column + lanes <= width)
        single = unrolled("lane", lanes, self.dtype, one)
        return IfThenElse(inside, whole, single)

    # ---- A vector of the result ------------------------------------------------------------------

    def _computed(self, vector: int, column: Any) -> list[Any]:
        conv = self.conv
        ahead = conv.start - self.rows.first * self.lanes
        return computed(
            self.fused,
            self.lanes,
            self.sums,
            self.out,
            lambda tap, lane: self.chunks[vector, lane + tap * conv.dilation + ahead],
            lambda lane: {conv.column.var: column + lane},
            None if self.total else lambda lane: self._is_inside(column + lane, conv.columns),
        )

    @staticmethod
    def _is_inside(column: Any, columns: Any) -> Any:
        return tirx.all(column >= 0, column < columns)

    def _store(self, vector: int, column: Any) -> Any:
        lanes, columns = self.lanes, self.conv.columns
        buffer, indices = self.fused.buffer, self.fused.indices
        element = self._in_memory(buffer, indices, vector, 0, column)
        whole = copied(lanes, self.dtype, lambda lane: (*element(lane), self.out[lane]))
        if not self.rows.shifted:
            return whole

        def one(lane: Any) -> Any:
            inside = self._is_inside(column + lane, columns)
            store = BufferStore(buffer, self.out[lane], [*indices[:-1], column + lane])
            return IfThenElse(inside, store, None)

        inside = tirx.all(column >= 0, column + lanes <= columns)
        return IfThenElse(inside, whole, unrolled("lane", lanes, self.dtype, one))
