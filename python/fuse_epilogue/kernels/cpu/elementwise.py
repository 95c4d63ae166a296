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
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, prim
from tvm.target import Target

from ...recognize.defined import may_be_discarded
from ...recognize.inlining import costs_little, inlined
from ...recognize.stages import Axis, Program, Stage, analyzer_of
from ...targets import vector_bits
from ...tir.affine import affine_of
from ...tir.build import with_fields
from ...tir.expressions import is_guard
from ...tir.walk import parts_of, substitute, uses
from ..scheduled import Scheduled, Way
from .costs import (
    CALL_S,
    CLOCK_HZ,
    NODE_CYCLES,
    bytes_per_cycle,
    on_threads,
    pieces,
    sharing,
    threads_for,
    together,
    touched_bytes,
    work,
    zero,
)
from .loops import FlatViews, index, sequence, with_loads
from .stage_loops import TILE, Access, access_of, rows_of, segments_of, tiles_of
from .transposition import EDGE
from .windows import guards

#: Cycles of an element that is not next to the one before it: it is loaded or shuffled alone, about
#: three in a cycle.
JUMP_CYCLES = 0.35


def schedule(program: Program, target: Target, threads: int = 1) -> Scheduled | None:
    """Schedule a function that reduces nothing.

    - `program`: all of its stages are elementwise.
    - `target`: target of kind "llvm".
    - `threads`: number of threads that parallel loops are made for.
    - Returns: None if a stage is a reduction.
    """
    if any(stage.reduced for stage in program.stages):
        return None
    small = inlined(program, costs_little)
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

    - `lanes`: number of elements of a vector.
    """
    return together(**cost(stage, lanes))


def cost(stage: Stage, lanes: int) -> dict[str, float]:
    """Return the predicted seconds of computing a stage and of moving its data, on one thread.

    - `lanes`: number of elements of a vector.
    """
    size = sum(touched_bytes(stage).values())
    flat = _collapsed(_flattened(stage, FlatViews()))
    elements = math.prod(flat.shape)
    extent = flat.shape[-1] if flat.shape else 1
    inner = [axis.var for axis in flat.axes[-1:]]
    lanes = lanes if _may_be_vector(flat) else 1
    of_row = sum(
        pieces(end - begin, lanes) * (1 + work(part.value, *inner))
        for begin, end, part in (segments_of(flat) if flat.axes else [(0, 1, flat)])
    )
    jumps = sum(_jumps(load, flat) for load in flat.loads)
    computing = elements // extent * of_row * NODE_CYCLES
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


def nest(stage: Stage, views: FlatViews, lanes: int, threads: int) -> Any:
    """Return the loops of an elementwise stage.

    - `views`: for its buffers.
    - `lanes`: number of elements of a vector.
    - `threads`: number of threads that there are.
    """
    threads = threads_for(predicted_s(stage, lanes), threads)
    stage = _collapsed(_flattened(stage, views))
    axes = stage.axes
    if not axes:
        return tirx.BufferStore(views.of(stage.output), stage.value, [index(0)])
    across, vectorized = _loops_of(stage)
    if across is None:
        return rows_of(stage, views, lanes if vectorized else 1, threads)
    return tiles_of(stage, views, across, lanes if vectorized else 1, threads)


def _loops_of(stage: Stage) -> tuple[int | None, bool]:
    """Return the axis that tiles are made along beside the last one, and whether there are vectors.

    None for no tiles.
    """
    accesses = [access_of(load, stage) for load in stage.loads]
    across = _transposed_axis(stage, accesses)
    if _is_interleaved(stage, accesses, across):
        return None, False
    return across, _may_be_vector(stage) and (across is not None or not _is_scattered(stage))


def _is_scattered(stage: Stage) -> bool:
    """Whether elements at places that are not linear, or with a border, are moved and no more.

    A vector of them is put together one by one. LLVM makes better ones of a loop over elements: in
    a tiled array a vector would begin in one tile and end in the next (0.62 us, and 0.47 in a
    loop); a pad of rows of 301 takes 3.8 us in vectors, and 0.65 in a loop.
    """
    if not _is_moved(stage.value):
        return False
    jumps = (_jumps(x, stage) and access_of(x, stage).strides is None for x in stage.loads)
    parts = [part.value for _, _, part in segments_of(stage)]
    return any(jumps) or bool(guards(parts, stage.axes[-1].var))


def _is_moved(value: Any) -> bool:
    """Whether a value is an element, or a constant where there is none."""
    if is_guard(value):
        return _is_moved(value.args[1]) and isinstance(value.args[2], prim.FloatImm | prim.IntImm)
    return isinstance(value, TensorLoad)


def described(stage: Stage, lanes: int, threads: int) -> str:
    """Return the description of the loops of a stage, for reports.

    - `lanes`: number of elements of a vector.
    - `threads`: number of threads that there are.
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
    accesses = [access_of(load, stage) for load in stage.loads]
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
        return bool(min(stage.axes[-1].extent, stage.axes[across].extent) < EDGE)
    return any(access.strides is not None and 1 < access.strides[-1] < EDGE for access in accesses)


def _may_be_vector(stage: Stage) -> bool:
    """Whether lanes may be computed together.

    TVM evaluates both arms of a Select in a vector: what is not defined everywhere stays scalar.
    """
    selects = parts_of(stage.value, prim.Select)
    return not selects or may_be_discarded(stage.value, analyzer_of(stage.axes))
