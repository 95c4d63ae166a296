"""A depthwise convolution along the rows of memory, in vectors, for LLVM.

TVM's own vectors would load x once for every tap, most of the loads across two cache lines, and
would compute the columns near a border one by one, under conditions. Here x is loaded once, in
chunks of one vector, and the window of a tap is put together in registers:

    chunk 0: x[b : b + 16]        chunk 1: x[b + 16 : b + 32]
    the window at b + 3: lanes 3 to 15 of the first, lanes 0 to 2 of the second    (one valignd)

The chunks move on with the columns: a vector loads one, its last, and has the others from the
vector before.

What lies outside of a row is a chunk, or lanes of one, of zeros: known when this is written, so
there are no conditions and no padded copy. A last vector that would go beyond the row is moved back
to end with it; its first lanes are computed twice, to the same values.

    for the rows, in parallel:
      vectors near the start      written out: some of their chunks are partly outside
      for the vectors inside      LLVM unrolls this loop
      vectors near the end        written out
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Range, prim
from tvm.tirx import BufferRegion, BufferStore, For
from tvm.tirx.stmt import ForKind

from ....rewrites.fused_conv import FusedConv
from ....tir.affine import as_constant
from ....tir.build import in_root, sequence
from ....tir.types import bits_of
from ....tir.unfold import unfold
from ....tir.walk import handle, substitute, substitute_part, uses
from ..vector_math import with_vector_functions
from .row_limits import at_most
from .streaming import StreamingStore, can_stream

# Chunks that stay in registers from vector to vector, at most. Where the taps are far apart, some
# chunks between them are not in use, and each vector loads its own.
_CARRIED = 4
# Rows of a streamed result from one wait for its stores to the next.
_ROWS_STREAMED = 32


def in_rows(
    func: tirx.PrimFunc, fused: FusedConv, lanes: int, stream: bool, parallel: bool
) -> tirx.PrimFunc:
    """Return a function that computes a fused convolution in vectors along its rows.

    - `func`: the function with the convolution and nothing else.
    - `fused`: what it computes; :func:`.row_limits.why_not_rows` has nothing against it.
    - `lanes`: elements of a vector, at most; a power of two.
    - `stream`: whether the result is stored around the caches, see :func:`streams`.
    - `parallel`: whether rows run in parallel.
    """
    kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
    return Rows(fused, at_most(lanes, fused.conv), stream, kind).function(func)


def streams(fused: FusedConv, lanes: int) -> bool:
    """Whether the result of a convolution in rows can be stored around the caches, on x86.

    - `fused`: the convolution that it computes.
    - `lanes`: elements of a vector, at most; a power of two.
    """
    conv = fused.conv
    counted = conv.outer and all(isinstance(as_constant(a.dom.extent), int) for a in conv.outer)
    return bool(counted) and can_stream(fused.buffer, at_most(lanes, conv), conv.columns)


class Rows:
    """Writes the code for one row."""

    def __init__(self, fused: FusedConv, lanes: int, stream: bool, kind: ForKind) -> None:
        conv = fused.conv
        self.fused, self.conv, self.lanes, self.kind = fused, conv, lanes, kind
        self.dtype = conv.window.ty.dtype
        self.offsets = self._offsets()
        # Chunks that a vector needs, counted from the one with its own columns.
        self.first = self.offsets[0] // lanes
        self.last = -(-self.offsets[-1] // lanes)
        count = self.last - self.first + 1
        self.carries = count - 1 <= _CARRIED
        # As integers: of those LLVM shifts lanes by `valign`, whose distance needs no register.
        bits = f"int{bits_of(self.dtype)}"
        self.chunks = tirx.decl_buffer((count, lanes), bits, "chunks")
        self.window = tirx.decl_buffer((lanes,), bits, "window")
        self.sums = tirx.decl_buffer((lanes,), conv.out.ty.dtype, "sums")
        self.allocated = [self.chunks, self.window, self.sums]
        self.stream: StreamingStore | None = None
        dtype = str(fused.buffer.ty.dtype)
        if stream:
            self.stream = StreamingStore(dtype, lanes)
            self.results = tirx.decl_buffer((lanes,), dtype, "results")
            self.allocated.append(self.results)

    def _offsets(self) -> list[int]:
        """Return the columns of x, counted from those of the result, at which windows begin."""
        return [self.conv.start + tap * self.conv.dilation for tap in range(self.conv.taps)]

    # ---- The function ----------------------------------------------------------------------------

    def function(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return the function: all rows."""
        outer = self.conv.outer
        index = outer[0].var.ty if outer else "int32"
        row = tirx.Var("row", index)
        extents = [axis.dom.extent for axis in outer]
        block = s_tir.SBlock(
            list(outer),
            self._regions(self.fused.reads),
            self._regions([self.fused.buffer[self.fused.indices]]),
            "rows",
            self._row(),
            alloc_buffers=self.allocated,
        )
        body: Any = s_tir.SBlockRealize(
            unfold(row, [as_constant(extent) for extent in extents]), True, block
        )
        if outer:
            body = self._all_rows(row, reduce(lambda a, b: a * b, extents), body)
        return func.with_body(in_root(body))

    def _all_rows(self, row: Any, total: Any, body: Any) -> Any:
        """Return the loop over all rows."""
        if self.stream is None:
            return For(row, _zero(row), total, self.kind, body)
        # Waiting for the stores takes longer than a row: only now and then.
        count = int(total)
        some = max(n for n in range(1, _ROWS_STREAMED + 1) if count % n == 0)
        group, each = (tirx.Var(name, row.ty) for name in ("group", "each"))
        inner = For(
            each, _zero(each), some, ForKind.SERIAL, substitute(body, {row: group * some + each})
        )
        several = tirx.SeqStmt([inner, self.stream.end()])
        return For(
            group, _zero(group), count // some, self.kind, several, annotations=self.stream.pragma
        )

    def _regions(self, elements: Sequence[Any]) -> list[Any]:
        """Return what a row touches: an element, or all along an axis that it runs along."""
        inner = (self.conv.column.var, self.conv.tap.var, self.fused.sum)
        found: dict[int, list[Any]] = {}
        for element in elements:
            found.setdefault(handle(element.source), []).append(element)
        regions = []
        for group in found.values():
            buffer = group[0].source
            ranges = []
            for place, size in enumerate(buffer.ty.shape):
                index = group[0].indices[place]
                same = all(element.indices[place].same_as(index) for element in group)
                inside = same and not uses(index, *inner)
                ranges.append(
                    Range.from_min_extent(index, 1) if inside else Range.from_min_extent(0, size)
                )
            regions.append(BufferRegion(buffer, ranges))
        return regions

    # ---- A row -----------------------------------------------------------------------------------

    def _row(self) -> Any:
        lanes, columns = self.lanes, self.conv.columns
        bases = range(0, columns - lanes + 1, lanes)
        start, stop = inside(columns, self.conv.width, lanes, self.first, self.last)
        statements: list[Any] = []
        if self.carries:
            for chunk in range(self.first, self.last):
                statements += self._load(chunk, chunk * lanes)
        for base in bases[:start]:
            statements += self._step(base)
        if start < stop:
            tile = tirx.Var("tile", self.conv.column.var.ty)
            body = tirx.SeqStmt(self._step((tile + start) * lanes))
            statements.append(For(tile, _zero(tile), stop - start, ForKind.SERIAL, body))
        for base in bases[stop:]:
            statements += self._step(base)
        if columns % lanes:
            statements += self._alone(columns - lanes)
        return sequence(statements)

    def _step(self, base: Any) -> list[Any]:
        """Return the code of the vector from column `base` on, after that of the one before."""
        if not self.carries:
            return self._alone(base)
        statements = self._load(self.last, base + self.last * self.lanes) + self._vector(base)
        whole = prim.Ramp(0, 1, self.lanes)
        for place in range(self.last - self.first):
            moved = self.chunks[place + 1, whole]
            statements.append(BufferStore(self.chunks, moved, [place, whole]))
        return statements

    def _alone(self, base: Any) -> list[Any]:
        """Return the code of the vector from column `base` on, with all of its chunks."""
        statements: list[Any] = []
        for chunk in range(self.first, self.last + 1):
            statements += self._load(chunk, base + chunk * self.lanes)
        return statements + self._vector(base)

    # ---- Chunks of x -----------------------------------------------------------------------------

    def _load(self, chunk: int, column: Any) -> list[Any]:
        """Return the code that loads x from a column on as the chunk of that number."""
        lanes, width, place = self.lanes, self.conv.width, chunk - self.first
        if not isinstance(column, int) or 0 <= column <= width - lanes:
            return [self._lanes(lambda lane: (self.chunks, [place, lane], self._x(column + lane)))]
        whole = prim.Ramp(0, 1, lanes)
        outside = prim.Broadcast(self._outside(), lanes)
        if column <= -lanes or column >= width:
            return [BufferStore(self.chunks, outside, [place, whole])]
        # The nearest vector inside, its lanes moved to where they belong.
        nearest = min(max(column, 0), width - lanes)
        moved = [
            lane + column - nearest if 0 <= lane + column < width else lanes
            for lane in range(lanes)
        ]
        shuffled = prim.Shuffle([self.window[whole], outside], moved)
        return [
            self._lanes(lambda lane: (self.window, [lane], self._x(nearest + lane))),
            BufferStore(self.chunks, shuffled, [place, whole]),
        ]

    def _outside(self) -> Any:
        """Return the bits of what is outside of a row."""
        return tirx.const(0, self.chunks.ty.dtype)

    def _x(self, column: Any) -> Any:
        """Return an element of x, cast as the convolution does; its bits."""
        conv = self.conv
        indices = [*conv.data.indices[:-1], column]
        return tirx.reinterpret(self.chunks.ty.dtype, conv.cast(conv.data.source[tuple(indices)]))

    # ---- A vector of the result ------------------------------------------------------------------

    def _vector(self, base: Any) -> list[Any]:
        """Return the code of one vector: T.init, a step for each tap, the tail."""
        start, value = self.fused.start, with_vector_functions(self.fused.result)
        statements = [self._lanes(lambda lane: (self.sums, [lane], self._at(start, base + lane)))]
        for tap, offset in enumerate(self.offsets):
            statements += self._tap(tap, offset, base)
        if isinstance(value, prim.Cast) and value.value.ty == self.sums.ty.dtype:
            # A step of its own: TVM repeats what it casts to bfloat16 in the code that rounds.
            wide = value.value
            statements.append(
                self._lanes(lambda lane: (self.sums, [lane], self._result(wide, base, lane)))
            )
            value = prim.Cast(value.ty.dtype, self.fused.sum)
        return [*statements, *self._stored(value, base)]

    def _at_offset(self, offset: int) -> Any:
        """Return the window that begins at an offset, from its chunks."""
        lanes, whole = self.lanes, prim.Ramp(0, 1, self.lanes)
        place, shift = divmod(offset, lanes)
        window = self.chunks[place - self.first, whole]
        if not shift:
            return window
        pair = [window, self.chunks[place - self.first + 1, whole]]
        return prim.Shuffle(pair, list(range(shift, shift + lanes)))

    def _tap(self, tap: int, offset: int, base: Any) -> list[Any]:
        """Return the code that adds the products of a tap to the sums."""
        conv, whole = self.conv, prim.Ramp(0, 1, self.lanes)
        hole, number = tirx.Var("x", conv.window.ty), tirx.const(tap, conv.tap.var.ty.dtype)
        term = substitute_part(conv.term, conv.window, hole)
        window = self._at_offset(offset)

        def step(lane: Any) -> Any:
            x = tirx.reinterpret(self.dtype, self.window[lane])
            added = self._at(term, base + lane, {hole: x, conv.tap.var: number})
            return self.sums, [lane], self.sums[lane] + added

        return [BufferStore(self.window, window, [whole]), self._lanes(step)]

    def _stored(self, value: Any, base: Any) -> list[Any]:
        """Return the code that stores a vector of results, around the caches if it is to."""
        buffer, outer = self.fused.buffer, self.fused.indices[:-1]
        if not self.stream:
            return [
                self._lanes(
                    lambda lane: (buffer, [*outer, base + lane], self._result(value, base, lane))
                )
            ]
        whole = prim.Ramp(0, 1, self.lanes)
        return [
            self._lanes(lambda lane: (self.results, [lane], self._result(value, base, lane))),
            self.stream.store(buffer[(*outer, base)], self.results[whole]),
        ]

    def _result(self, value: Any, base: Any, lane: Any) -> Any:
        """Return an expression of the sum for one lane."""
        return self._at(value, base + lane, {self.fused.sum: self.sums[lane]})

    def _at(self, expr: Any, column: Any, values: Mapping[Any, Any] | None = None) -> Any:
        return substitute(expr, {self.conv.column.var: column, **(values or {})})

    def _lanes(self, store: Callable[[Any], tuple[Any, list[Any], Any]]) -> Any:
        """Return a vectorized loop over the lanes with one store: buffer, indices, value."""
        lane = tirx.Var("lane", self.conv.column.var.ty)
        buffer, indices, value = store(lane)
        body = BufferStore(buffer, value, indices)
        return For(lane, _zero(lane), self.lanes, ForKind.VECTORIZED, body)


def inside(columns: int, width: int, lanes: int, first: int, last: int) -> tuple[int, int]:
    """Return which whole vectors of a row need no chunk that is partly outside of it.

    The columns are neighbours: those before them are near the start of the row, those after them
    near its end.

    - `columns`, `width`: columns of the result, and of x.
    - `lanes`: elements of a vector, and of a chunk.
    - `first`, `last`: the chunks that a vector needs, counted from the one with its own columns.
    - Returns: the first of them, and the one after the last: (0, 0) if there is none.

    >>> inside(columns=100, width=100, lanes=16, first=-1, last=1)
    (1, 5)
    """
    start, stop = max(0, -first), min(columns // lanes, width // lanes - last)
    return (start, stop) if start < stop else (0, 0)


def _zero(var: Any) -> Any:
    return tirx.const(0, var.ty.dtype)
