"""Rewrites a function that only moves elements: transfers within HBM, or through the tensor engine.

A transfer takes a pattern as it is. Where neighbours in the result are not neighbours in the source
it would move element by element, each as long as hundreds of bytes:

    for the loops that are neither:
        for 512 of the loop whose elements are neighbours in the result:
            for 128 of the loop whose elements are neighbours in the source:
                load 4 tiles of 128 rows, transpose them into one bank of PSUM, copy, store
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ...rewrites.step import NotRewritten
from .read_movement import Dim, Pattern, indices
from .tile_writer import Span, TileWriter
from .tiles import BANK, FLOATS, PARTITIONS

#: Loops that one transfer goes through; those around it are loops of the kernel.
_DIMS = 4
#: Loops up to which a pattern's are split where it goes through several rows of a buffer.
_MOST_DIMS = 7


def is_transposition(pattern: Pattern) -> bool:
    """Whether neighbours in the result and in the source are along two different loops."""
    return str(pattern.output.ty.dtype) in FLOATS and _pair(pattern) is not None


def rewritten(func: tirx.PrimFunc, patterns: Sequence[Pattern], transposed: bool) -> tirx.PrimFunc:
    """Write a function that moves elements.

    - `func`: the function; the result has its parameters.
    - `patterns`: of :func:`.moves.find_moves`.
    - `transposed`: whether the tensor engine transposes the patterns that are transpositions.
    - Raises NotRewritten: a pattern goes through rows of a buffer in a way that no indices express.
    """
    writer = TileWriter(func, "int32")
    with writer.function():
        for pattern in patterns:
            for each in _fitted(pattern):
                if transposed and is_transposition(each):
                    _Transposition(writer, each).write()
                else:
                    _transfer(writer, each)
    return writer.written()


# ---- Loops that go through one row at a time ----------------------------------------------------


def _fitted(pattern: Pattern) -> list[Pattern]:
    """Return a pattern with its loops split so that each counts along one axis of both buffers."""
    todo = [pattern]
    while todo and len(todo[0].dims) <= _MOST_DIMS:
        found = next((each for each in todo if _fits(each)), None)
        if found is not None:
            return [found]
        todo = [split for each in todo for split in _splits(each)]
    if not pattern.dims:
        raise NotRewritten(
            f"an element of '{pattern.source.name}' cannot be addressed by a transfer"
        )
    first, *inner = pattern.dims
    return [
        each
        for number in range(first.count)
        for each in _fitted(
            replace(
                pattern,
                out_start=pattern.out_start + number * first.out,
                source_start=pattern.source_start + number * first.source,
                dims=tuple(inner),
            )
        )
    ]


def _fits(pattern: Pattern) -> bool:
    sides = (
        (pattern.output, pattern.out_start, [dim.out for dim in pattern.dims]),
        (pattern.source, pattern.source_start, [dim.source for dim in pattern.dims]),
    )
    zero = tirx.const(0, "int32")
    counts = [dim.count for dim in pattern.dims]
    return all(
        _indices(buffer, start, [(zero, n, d) for n, d in zip(counts, distances, strict=True)])
        is not None
        for buffer, start, distances in sides
    )


def _splits(pattern: Pattern) -> Iterator[Pattern]:
    """Yield a pattern with one of its loops as two."""
    for place, dim in enumerate(pattern.dims):
        for count in range(2, dim.count):
            if dim.count % count == 0:
                outer = Dim(dim.count // count, dim.out * count, dim.source * count)
                own = (outer, replace(dim, count=count))
                yield replace(
                    pattern, dims=(*pattern.dims[:place], *own, *pattern.dims[place + 1 :])
                )


def _indices(buffer: Any, start: int, loops: list[tuple[Any, int, int]]) -> list[Any] | None:
    shape = tuple(int(size) for size in buffer.ty.shape)
    return indices(shape, start, loops, lambda value: tirx.const(value, "int32"))


# ---- Transfers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loop:
    """A loop of a pattern, or a part of one, by the name that it has in blocks."""

    name: str
    dim: Dim


def _transfer(writer: TileWriter, pattern: Pattern) -> None:
    """Write a pattern as one transfer, in loops if it has many."""
    loops = [_Loop(f"d{place}", dim) for place, dim in enumerate(pattern.dims)]
    # No access pattern runs backwards.
    along = [each for each in loops if each.dim.source >= 0][-_DIMS:]
    with _around(writer, [each for each in loops if each not in along]):
        with writer.block("moved", {each.name: Span(each.dim.count) for each in along}) as at:
            value = writer.parameters[pattern.source][_place(pattern, at, loops, False)]
            T.buffer_store(
                writer.parameters[pattern.output], value, _place(pattern, at, loops, True)
            )


@contextlib.contextmanager
def _around(writer: TileWriter, loops: Sequence[_Loop]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in loops:
            if each.dim.count > 1:
                stack.enter_context(writer.loop(each.name, each.dim.count))
        yield


def _place(
    pattern: Pattern, at: Any, loops: Sequence[_Loop], out: bool, more: tuple[int, int] = (0, 0)
) -> list[Any]:
    """Return the indices of an element in the result or the source."""
    buffer = pattern.output if out else pattern.source
    start = (pattern.out_start + more[0]) if out else (pattern.source_start + more[1])
    found = _indices(
        buffer,
        start,
        [
            (at[each.name], each.dim.count, each.dim.out if out else each.dim.source)
            for each in loops
            if each.dim.count > 1
        ],
    )
    if found is None:
        raise NotRewritten(f"a loop goes through several rows of '{buffer.name}'")
    return found


# ---- Transpositions -----------------------------------------------------------------------------


def _pair(pattern: Pattern) -> tuple[int, int] | None:
    """Return which loop has neighbours in the source, and which in the result."""
    near = [place for place, dim in enumerate(pattern.dims) if dim.source == 1]
    out = [place for place, dim in enumerate(pattern.dims) if dim.out == 1]
    return (near[0], out[0]) if near and out and near[0] != out[0] else None


@dataclass(frozen=True)
class _Chunk:
    """Equal parts of a loop: how many, how long, and which one is first."""

    count: int
    size: int
    first: int


def _chunks(total: int, size: int) -> list[_Chunk]:
    whole, rest = divmod(total, size)
    found = [_Chunk(whole, size, 0)] if whole else []
    return [*found, *([_Chunk(1, rest, whole * size)] if rest else [])]


class _Transposition:
    def __init__(self, writer: TileWriter, pattern: Pattern) -> None:
        self.writer, self.pattern = writer, pattern
        pair = _pair(pattern)
        assert pair is not None, "it is a transposition"
        self.near, self.out = (pattern.dims[place] for place in pair)
        self.others = [
            _Loop(f"d{place}", dim) for place, dim in enumerate(pattern.dims) if place not in pair
        ]
        self.dtype = str(pattern.output.ty.dtype)

    def write(self) -> None:
        """Write everything."""
        with _around(self.writer, self.others):
            for near, out in itertools.product(
                _chunks(self.near.count, PARTITIONS), _chunks(self.out.count, BANK)
            ):
                chunks = [
                    _Loop("a_tile", Dim(near.count, *self._step(self.near, near.size))),
                    _Loop("b_tile", Dim(out.count, *self._step(self.out, out.size))),
                ]
                with _around(self.writer, chunks):
                    self._tile(near, out, [*self.others, *chunks])

    @staticmethod
    def _step(dim: Dim, size: int) -> tuple[int, int]:
        return dim.out * size, dim.source * size

    def _tile(self, near: _Chunk, out: _Chunk, loops: list[_Loop]) -> None:
        """Write what becomes one bank of PSUM."""
        writer, dtype = self.writer, self.dtype
        first = tuple(
            a * near.first + b * out.first
            for a, b in ((self.near.out, self.out.out), (self.near.source, self.out.source))
        )
        bank = writer.tile("bank", (near.size, out.size), dtype, "trn.psum")
        for start in range(0, out.size, PARTITIONS):
            size = min(PARTITIONS, out.size - start)
            rows = writer.tile("rows", (size, near.size), dtype)
            own = [_Loop("b", replace(self.out, count=size)), _Loop("a", self._along(near))]
            spans = {"b": Span(size, "P"), "a": Span(near.size)}
            with writer.block("loaded", spans) as at:
                more = first[0], first[1] + start * self.out.source
                value = writer.parameters[self.pattern.source][
                    _place(self.pattern, at, [*loops, *own], False, more)
                ]
                T.buffer_store(rows, value, (at["b"], at["a"]))
            with writer.block("transposed", {"a": Span(near.size, "P"), "b": Span(size)}) as at:
                T.buffer_store(bank, rows[at["b"], at["a"]], (at["a"], start + at["b"]))
        tile = writer.tile("columns", (near.size, out.size), dtype)
        spans = {"a": Span(near.size, "P"), "b": Span(out.size)}
        with writer.block("copied", spans) as at:
            T.buffer_store(tile, bank[at["a"], at["b"]], (at["a"], at["b"]))
        own = [_Loop("a", self._along(near)), _Loop("b", replace(self.out, count=out.size))]
        with writer.block("stored", spans) as at:
            place = _place(self.pattern, at, [*loops, *own], True, (first[0], first[1]))
            T.buffer_store(writer.parameters[self.pattern.output], tile[at["a"], at["b"]], place)

    def _along(self, near: _Chunk) -> Dim:
        return replace(self.near, count=near.size)
