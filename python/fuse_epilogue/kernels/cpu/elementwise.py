"""Elementwise work and data movement: one pass over the output, in vectors.

    for the outer axes, in parallel:
        for vectors of the last axis: y[...] = f(a[...], b[...], ...)
        for the elements that are left: the same

Axes that are contiguous in every buffer become one. Where an input is transposed (its neighbours
are neighbours along another axis than the output's), both axes are cut into tiles, so that a line
of the cache is used up while it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, prim
from tvm.target import Target

from ...recognize.defined import may_be_discarded
from ...recognize.stages import Axis, Program, Stage, analyzer_of, inlined
from ...targets import vector_bits
from ...tir.affine import affine_of
from ...tir.build import with_fields
from ...tir.walk import handle, parts_of, substitute, uses
from ..scheduled import Scheduled, Way
from .costs import (
    CALL_S,
    CLOCK_HZ,
    NODE_CYCLES,
    bytes_per_cycle,
    element_bytes,
    on_threads,
    pieces,
    sharing,
    threads_for,
    together,
    touched_bytes,
    work,
    zero,
)
from .loops import FlatViews, flat_index, index, loop, sequence, with_loads
from .transposition import EDGE, transposed_block

#: Nodes of an expression up to which it is computed again by each reader.
CHEAP = 24
#: Rows and columns of a tile, where an input is transposed.
TILE = 16
#: Cycles of an element that is not next to the one before it: it is loaded or shuffled alone, about
#: three in a cycle.
JUMP_CYCLES = 0.35


def schedule(
    program: Program,
    target: Target,
    threads: int = 1,
    constants: frozenset[int] = frozenset(),  # noqa: ARG001 - every kind has the same parameters
) -> Scheduled | None:
    """Schedule a function that reduces nothing.

    Parameters
    ----------
    program : Program
        All of its stages are elementwise.
    target : tvm.target.Target
        Target of kind "llvm".
    threads : int
        Number of threads that parallel loops are made for.
    constants : frozenset[int]
        Unused here.

    Returns
    -------
    Scheduled or None
        None if a stage is a reduction.

    Example
    -------
    >>> import tvm
    >>> from tvm import te
    >>> from fuse_epilogue.recognize.stages import read_program
    >>> from fuse_epilogue.schedules import host
    >>> x = te.placeholder((64, 32), "float32")
    >>> y = te.compute((32, 64), lambda i, j: te.max(x[j, i], 0.0))
    >>> func = te.create_prim_func([x, y])
    >>> schedule(read_program(func), host(1)).kind
    'elementwise'
    """
    if any(stage.reduced for stage in program.stages):
        return None
    small = inlined(program, _pays)
    views = FlatViews()
    inner = [stage.output for stage in small.stages if not program.is_param(stage.output)]
    allocated = [views.allocate(buffer) for buffer in inner]
    lanes = max(1, vector_bits(target) // 32)
    nests = [nest(stage, views, lanes, threads) for stage in small.stages]
    body = sequence([*allocated, *views.declare(sequence(nests))])
    func = with_fields(program.func, body=body)
    each = [on_threads(predicted_s(stage, lanes), threads) for stage in small.stages]
    seconds = CALL_S + sum(each)
    texts = "; ".join(dict.fromkeys(described(stage, lanes, threads) for stage in small.stages))
    costs = [cost(stage, lanes) for stage in small.stages]
    way = Way(texts, seconds, {name: sum(part[name] for part in costs) for name in costs[0]})
    return Scheduled(func, "elementwise", predicted_s=seconds, ways=(way,))


def predicted_s(stage: Stage, lanes: int) -> float:
    """Return the seconds that a stage is predicted to take on one thread.

    Parameters
    ----------
    stage : Stage
    lanes : int
        Number of elements of a vector.
    """
    return together(**cost(stage, lanes))


def cost(stage: Stage, lanes: int) -> dict[str, float]:
    """Return the predicted seconds of computing a stage and of moving its data, on one thread.

    Parameters
    ----------
    stage : Stage
    lanes : int
        Number of elements of a vector.
    """
    size = sum(touched_bytes(stage).values())
    flat = _collapsed(_flattened(stage, FlatViews()))
    elements = math.prod(flat.shape)
    extent = flat.shape[-1] if flat.shape else 1
    inner = [axis.var for axis in flat.axes[-1:]]
    vectors = pieces(extent, lanes) if _may_be_vector(flat) else extent
    jumps = sum(_jumps(load, flat) for load in flat.loads)
    computing = elements // extent * vectors * NODE_CYCLES * (1 + work(flat.value, *inner))
    computing += elements * JUMP_CYCLES * jumps
    moving = size / bytes_per_cycle(size)
    return {"computing": computing / CLOCK_HZ, "moving": moving / CLOCK_HZ}


def _jumps(load: Any, stage: Stage) -> bool:
    """Return whether neighbours along the last axis are neither equal nor next to each other."""
    at = load.indices[0]
    if not stage.axes:
        return False
    if any(uses(each, stage.axes[-1].var) for each in parts_of(at, TensorLoad)):
        return True
    found = affine_of(with_loads(at, zero), [axis.var for axis in stage.axes])
    return found is None or found.factors[-1] not in (0, 1)


def _pays(stage: Stage, readers: Sequence[Stage]) -> bool:
    uses = sum(
        handle(load.source) == handle(stage.output) for reader in readers for load in reader.loads
    )
    return uses <= 1 or _nodes(stage.value) <= CHEAP


def _nodes(value: Any) -> int:
    found = parts_of(value, tirx.Expr)
    calls = parts_of(value, Call)
    # A function such as exp is some twenty operations.
    return len(found) + 20 * len(calls)


@dataclass(frozen=True)
class Access:
    """Place of a load or a store of a stage, for each axis.

    Attributes
    ----------
    strides : tuple[int, ...] or None
        Elements from one value of an axis to the next; None if that is not constant.
    """

    strides: tuple[int, ...] | None


def nest(stage: Stage, views: FlatViews, lanes: int, threads: int) -> Any:
    """Return the loops of an elementwise stage.

    Parameters
    ----------
    stage : Stage
    views : FlatViews
        For its buffers.
    lanes : int
        Number of elements of a vector.
    threads : int
        Number of threads that there are.
    """
    threads = threads_for(predicted_s(stage, lanes), threads)
    stage = _collapsed(_flattened(stage, views))
    axes = stage.axes
    if not axes:
        return tirx.BufferStore(views.of(stage.output), stage.value, [index(0)])
    across, vectorized = _loops_of(stage)
    if across is None:
        order = list(range(len(axes)))
        return _rows(stage, views, order, lanes if vectorized else 1, threads)
    return _tiles(stage, views, across, lanes if vectorized else 1, threads)


def _loops_of(stage: Stage) -> tuple[int | None, bool]:
    """Return the axis that tiles are made along beside the last one, and whether there are vectors.

    None for no tiles.
    """
    accesses = [_access(load, stage) for load in stage.loads]
    across = _transposed_axis(stage, accesses)
    if _is_interleaved(stage, accesses, across):
        return None, False
    return across, _may_be_vector(stage)


def described(stage: Stage, lanes: int, threads: int) -> str:
    """Return the description of the loops of a stage, for reports.

    Parameters
    ----------
    stage : Stage
    lanes : int
        Number of elements of a vector.
    threads : int
        Number of threads that there are.
    """
    flat = _collapsed(_flattened(stage, FlatViews()))
    if not flat.axes:
        return "one element"
    across, vectorized = _loops_of(flat)
    extent = flat.axes[-1].extent
    text = f"vectors of {min(lanes, extent)}" if vectorized else "one element after the other"
    if across is not None:
        text = f"tiles of {TILE} x {TILE}, as an operand is transposed"
    return text + sharing(predicted_s(stage, lanes), threads)


def _rows(stage: Stage, views: FlatViews, order: list[int], lanes: int, threads: int) -> Any:
    *outer, last = [stage.axes[place] for place in order]
    extent = last.extent
    while lanes > 1 and extent < lanes:
        lanes //= 2
    vectors, rest = divmod(extent, lanes)

    def store(values: dict[Any, Any]) -> Any:
        return _store(stage, views, values)

    def row(values: dict[Any, Any], begin: Any, count: Any) -> Any:
        return loop(
            "vector",
            begin,
            count,
            lambda v: loop(
                "lane",
                0,
                lanes,
                lambda lane: store({**values, last.var: v * index(lanes) + lane}),
                tirx.ForKind.VECTORIZED,
            ),
        )

    def whole_row(values: dict[Any, Any]) -> Any:
        body = [row(values, 0, vectors)] if vectors else []
        if rest:
            begin = index(vectors * lanes)
            body.append(loop("left", 0, rest, lambda i: store({**values, last.var: begin + i})))
        return sequence(body)

    if threads > 1 and math.prod(axis.extent for axis in outer) < threads and not outer:
        # One row: a part for each thread.
        part = -(-vectors // threads)
        tail = index(vectors * lanes)
        parts = loop(
            "part",
            0,
            threads,
            lambda p: row(
                {},
                p * index(part),
                tirx.max(index(0), tirx.min(index(part), index(vectors) - p * index(part))),
            ),
            tirx.ForKind.PARALLEL,
        )
        left = loop("left", 0, rest, lambda i: store({last.var: tail + i})) if rest else None
        return sequence([parts, left])
    return _outer(outer, whole_row, threads)


def _outer(axes: Sequence[Axis], body: Any, threads: int) -> Any:
    """Return loops over axes, the first two of which run in parallel as one if need be."""

    def visit(rest: Sequence[Axis], values: dict[Any, Any]) -> Any:
        if not rest:
            return body(values)
        first, *others = rest
        return loop(
            str(first.var.name), 0, first.extent, lambda i: visit(others, {**values, first.var: i})
        )

    if threads == 1 or not axes:
        return visit(axes, {})
    count = 1
    together = 0
    while together < len(axes) and count < 4 * threads:
        count *= axes[together].extent
        together += 1

    def parallel(number: Any) -> Any:
        values: dict[Any, Any] = {}
        left = number
        for place in range(together - 1, -1, -1):
            extent = index(axes[place].extent)
            values[axes[place].var] = tirx.floormod(left, extent) if place else left
            left = tirx.floordiv(left, extent)
        return visit(axes[together:], values)

    return loop("parallel", 0, count, parallel, tirx.ForKind.PARALLEL)


def _tiles(stage: Stage, views: FlatViews, across: int, lanes: int, threads: int) -> Any:
    """Return loops over tiles of the last axis and of the one that an input is contiguous in."""
    tiles = _Tiles(stage, views, across, lanes)
    axes = (tiles.other, tiles.last)
    outer = [axis for axis in stage.axes if axis not in axes]
    # The shorter axis inside: what is read and what is written of it stay in the cache.
    first, second = axes if tiles.other.extent >= tiles.last.extent else axes[::-1]
    parts = _parts(first.extent, tiles.edge)
    return sequence([tiles.bands(outer, first, second, part, threads) for part in parts])


def _parts(extent: int, edge: int) -> list[tuple[int, int, int]]:
    """Return begin, number and size of the whole tiles of an axis, and of what is left."""
    whole, rest = divmod(extent, edge)
    parts = [(0, whole, edge), (whole * edge, 1, rest)]
    return [(begin, count, size) for begin, count, size in parts if count and size]


class _Tiles:
    """The tiles of a stage with a transposed input."""

    def __init__(self, stage: Stage, views: FlatViews, across: int, lanes: int) -> None:
        self.stage, self.views = stage, views
        self.last, self.other = stage.axes[-1], stage.axes[across]
        self.lanes = min(lanes, TILE)
        pairs = [(load, _access(load, stage).strides) for load in stage.loads]
        self.transposed = [
            load for load, strides in pairs if strides and strides[across] == 1 < strides[-1]
        ]
        # Shuffles are of 32 bits; of more inputs than two, the vectors do not fit into registers.
        in_registers = lanes >= EDGE and 0 < len(self.transposed) <= 2
        self.in_registers = in_registers and all(
            element_bytes(load.source) == 4 for load in self.transposed
        )
        self.edge = EDGE if self.in_registers else TILE

    def bands(
        self,
        outer: Sequence[Axis],
        first: Axis,
        second: Axis,
        part: tuple[int, int, int],
        threads: int,
    ) -> Any:
        """Return the loops over a part of the first axis, each with all of the second."""
        begin, count, size = part
        band = Axis(tirx.Var("band", "int64"), count)

        def tile(values: dict[Any, Any], start: int, wide: int) -> Callable[[Any], Any]:
            at = (values[band.var] * index(size) + index(begin), size)
            return lambda i: self.tile(
                values, {first: at, second: (i * index(wide) + index(start), wide)}
            )

        def body(values: dict[Any, Any]) -> Any:
            parts = _parts(second.extent, self.edge)
            return sequence(
                [loop("tile", 0, many, tile(values, start, wide)) for start, many, wide in parts]
            )

        return _outer([*outer, band], body, threads)

    def tile(self, values: dict[Any, Any], at: dict[Axis, tuple[Any, int]]) -> Any:
        """Return a tile that begins somewhere, and has some size, along each of its axes."""
        (row, rows), (column, columns) = at[self.other], at[self.last]
        if self.in_registers and (rows, columns) == (EDGE, EDGE):
            return self.block(values, row, column)
        return self.elements(values, row, rows, column, columns)

    def elements(self, values: dict[Any, Any], at: Any, rows: int, begin: Any, columns: int) -> Any:
        """Return the loops over a tile whose elements are loaded one by one."""
        whole, rest = divmod(columns, self.lanes)

        def row(i: Any) -> Any:
            own = {**values, self.other.var: at + i}

            def vector(v: Any) -> Any:
                def store(lane: Any) -> Any:
                    at = {**own, self.last.var: begin + v * index(self.lanes) + lane}
                    return _store(self.stage, self.views, at)

                return loop("lane", 0, self.lanes, store, tirx.ForKind.VECTORIZED)

            def element(j: Any) -> Any:
                at = {**own, self.last.var: begin + index(whole * self.lanes) + j}
                return _store(self.stage, self.views, at)

            body = [loop("vector", 0, whole, vector)] if whole else []
            return sequence([*body, loop("left", 0, rest, element)] if rest else body)

        return loop("row", 0, rows, row)

    def block(self, values: dict[Any, Any], at: Any, begin: Any) -> Any:
        """Return a tile that is loaded along one axis, transposed in registers, and stored."""
        statements: list[Any] = []
        table: dict[int, Any] = {}
        for load in self.transposed:
            kept = tirx.decl_buffer(
                (index(EDGE * EDGE),), str(load.source.dtype), "tile", layout=None
            )
            statements.append(tirx.AllocBuffer(kept))
            table[handle(load)] = kept
            rows = []
            for lane in range(EDGE):
                own = {**values, self.other.var: at, self.last.var: begin + index(lane)}
                first = substitute(load.indices[0], own)
                rows.append(tirx.BufferLoad(load.source, [tirx.Ramp(first, index(1), EDGE)]))
            moves, columns = transposed_block(rows)
            statements += moves
            for place, column in enumerate(columns):
                ramp = tirx.Ramp(index(place * EDGE), index(1), EDGE)
                statements.append(tirx.BufferStore(kept, column, [ramp]))

        def row(i: int) -> Any:
            def store(lane: Any) -> Any:
                def kept(load: Any) -> Any:
                    buffer = table.get(handle(load))
                    if buffer is None:
                        return load
                    return tirx.BufferLoad(buffer, [index(i * EDGE) + lane])

                value = with_loads(self.stage.value, kept)
                stage = replace(self.stage, stores=(replace(self.stage.stores[0], value=value),))
                own = {**values, self.other.var: at + index(i), self.last.var: begin + lane}
                return _store(stage, self.views, own)

            return loop("lane", 0, EDGE, store, tirx.ForKind.VECTORIZED)

        return sequence([*statements, *map(row, range(EDGE))])


def _store(stage: Stage, views: FlatViews, values: dict[Any, Any]) -> Any:
    table = {var: value for var, value in values.items()}
    at = substitute(flat_index([axis.var for axis in stage.axes], stage.shape), table)
    return tirx.BufferStore(views.of(stage.output), substitute(stage.value, table), [at])


def _flattened(stage: Stage, views: FlatViews) -> Stage:
    """Return a stage whose axes are of 64 bits, and whose loads are of flat views."""
    axes = tuple(Axis(tirx.Var(str(axis.var.name), "int64"), axis.extent) for axis in stage.axes)
    table = {
        old.var: new.var if str(old.var.ty.dtype) == "int64" else new.var.astype(old.var.ty.dtype)
        for old, new in zip(stage.axes, axes, strict=True)
    }
    analyzer = analyzer_of(axes)
    value = with_loads(substitute(stage.value, table), lambda load: views.load(load, analyzer))
    stores = (replace(stage.stores[0], value=value),)
    return replace(stage, axes=axes, stores=stores)


def _collapsed(stage: Stage) -> Stage:
    """Return a stage without axes of one value, and with axes merged that every buffer merges."""
    single = {axis.var: index(0) for axis in stage.axes if axis.extent == 1}
    axes = [axis for axis in stage.axes if axis.extent > 1]
    value = substitute(stage.value, single)
    stage = replace(stage, axes=tuple(axes), stores=(replace(stage.stores[0], value=value),))
    place = len(axes) - 2
    while place >= 0:
        merged = _merged(stage, place)
        stage = merged or stage
        place -= 1
    return stage


def _merged(stage: Stage, place: int) -> Stage | None:
    """Return the stage with an axis merged into the next one, or None if that cannot be."""
    outer, inner = stage.axes[place], stage.axes[place + 1]
    accesses = [_access(load, stage) for load in stage.loads]
    for access in accesses:
        if access.strides is None:
            return None
        if access.strides[place] != inner.extent * access.strides[place + 1]:
            return None
    value = stage.value
    hidden = with_loads(value, zero)
    if uses(hidden, outer.var, inner.var):
        return None
    together = Axis(
        tirx.Var(f"{outer.var.name}_{inner.var.name}", "int64"), outer.extent * inner.extent
    )
    analyzer = analyzer_of([*stage.axes, together])

    def load(node: Any) -> Any:
        at = substitute(node.indices[0], {outer.var: index(0), inner.var: together.var})
        return tirx.BufferLoad(node.source, [analyzer.simplify(at)])

    axes = (*stage.axes[:place], together, *stage.axes[place + 2 :])
    return replace(
        stage, axes=axes, stores=(replace(stage.stores[0], value=with_loads(value, load)),)
    )


def _access(load: Any, stage: Stage) -> Access:
    found = affine_of(load.indices[0], [axis.var for axis in stage.axes])
    return Access(None if found is None else found.factors)


def _transposed_axis(stage: Stage, accesses: Sequence[Access]) -> int | None:
    """Return the axis along which an input is contiguous that the output's last axis jumps in."""
    for access in accesses:
        if access.strides is None or access.strides[-1] in (0, 1):
            continue
        for place, stride in enumerate(access.strides[:-1]):
            if stride == 1 and stage.axes[place].extent > 1:
                return place
    return None


def _is_interleaved(stage: Stage, accesses: Sequence[Access], across: int | None) -> bool:
    """Return whether single elements are better than vectors: LLVM makes vectors of them.

    Its vectors are loaded and shuffled where few neighbours belong to different vectors (3 channels
    of an image, every second element); those of TVM are gathered.
    """
    if parts_of(stage.value, Call):
        return False
    if across is not None:
        return min(stage.axes[-1].extent, stage.axes[across].extent) < EDGE
    return any(access.strides is not None and 1 < access.strides[-1] < EDGE for access in accesses)


def _may_be_vector(stage: Stage) -> bool:
    """Whether lanes may be computed together.

    TVM evaluates both arms of a Select in a vector: what is not defined everywhere stays scalar.
    """
    selects = parts_of(stage.value, prim.Select)
    return not selects or may_be_discarded(stage.value, analyzer_of(stage.axes))
