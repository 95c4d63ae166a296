"""Row programs: reductions and elementwise work along the same rows, a row after the other.

    for the outer axes, in parallel:
        for vectors of a row: highest = max(highest, x)                one pass
        for vectors of a row: e = exp(x - highest), total += e         one pass: its sum needs only
        for vectors of a row: y = e / total                            the element just computed

Values that later passes of a row need are in a buffer of a row. A reduction has several
accumulators, each a vector; at the end they are combined by halves. While functions of a long row
are computed, the next one is fetched. A softmax of rows that are longer still is computed in
blocks, each of which is read once (`blocks.py`). Where neighbours in memory are of different rows,
a vector is of as many rows, and nothing is combined over lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvm.target import Target

from ....recognize.row_program import Group, RowProgram, RowStage, read_row_program
from ....recognize.row_stages import elements_of
from ....recognize.stages import Program
from ....targets import vector_bits
from ....tir.build import with_fields
from ....tir.types import bytes_of
from ....tir.walk import handle
from ...scheduled import Scheduled, Way
from .. import elementwise
from ..costs import (
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
)
from ..loops import FlatViews, sequence
from .group import GroupKernel

__all__ = ["alternatives", "predicted_s"]

#: Nodes of a step that combines the halves of a vector: a shuffle and an operation.
NODES_OF_HALVES = 2
#: Bits of the shortest vectors that are compared.
LEAST_BITS = 256
#: Nodes that choose one of two pairs: less, equal, less, both of these, either, two choices.
NODES_OF_TUPLE = 7


def alternatives(program: Program, target: Target, threads: int = 1) -> Iterator[Scheduled]:
    """Yield ways to schedule reductions along rows, and elementwise work between them.

    The fastest by prediction comes first. They differ in the length of vectors: the last elements
    of a row, and the steps in which a vector of sums becomes one, are fewer in shorter ones.

    - `program`: there is no way if it has no reduction, or one that cannot be regrouped.
    - `target`: target of kind "llvm".
    - `threads`: number of threads that parallel loops are made for.
    """
    found = read_row_program(program)
    if found is None:
        return
    bits = vector_bits(target)
    made = [_scheduled(found, bits, threads)]
    while bits // 2 >= LEAST_BITS:
        bits //= 2
        made.append(_scheduled(found, bits, threads))
    made.sort(key=lambda each: each.predicted_s)
    for each in made:
        others = [other.ways[0] for other in made if other is not each]
        yield replace(each, ways=(*each.ways, *others))


def _scheduled(found: RowProgram, bits: int, threads: int) -> Scheduled:
    """Return the kernel in vectors of some bits."""
    views = FlatViews()
    for view, output in found.views:
        views.stand_for(view, output)
    stored = _stored(found)
    allocated = [
        views.allocate(store.buffer)
        for stage in found.program.stages
        for store in stage.stores
        if handle(store.buffer) in stored and not found.program.is_param(store.buffer)
    ]
    nests = []
    predicted = CALL_S
    texts = []
    parts = {"computing": 0.0, "moving": 0.0}
    for group in found.groups:
        stages = [each.stage for each in group.stages]
        if group.reduces:
            seconds = predicted_s(group, stored, bits)
            predicted += on_threads(seconds, threads)
            used = threads_for(seconds, threads)
            kernel = GroupKernel(group, stored, views, bits, used)
            nests.append(kernel.body())
            texts.append(kernel.text + sharing(seconds, threads))
            costs = [cost(group, stored, bits)]
        else:
            lanes = max(1, bits // 32)
            alone = [elementwise.predicted_s(stage, lanes) for stage in stages]
            predicted += sum(on_threads(each, threads) for each in alone)
            nests += [elementwise.nest(stage, views, lanes, threads) for stage in stages]
            texts += [elementwise.described(stage, lanes, threads) for stage in stages]
            costs = [elementwise.cost(stage, lanes) for stage in stages]
        parts = {name: parts[name] + sum(each[name] for each in costs) for name in parts}
    body = sequence([*allocated, *views.declare(sequence(nests))])
    func = with_fields(found.program.func, body=body)
    way = Way("; ".join(dict.fromkeys(texts)), predicted, parts)
    return Scheduled(func, "row program", _fusion(found.groups), predicted_s=predicted, ways=(way,))


def predicted_s(group: Group, stored: frozenset[int], bits: int) -> float:
    """Return the seconds that a group is predicted to take on one thread.

    - `stored`: buffers that are stored whole; others that it computes stay near.
    - `bits`: bits of a vector.
    """
    return together(**cost(group, stored, bits))


def cost(group: Group, stored: frozenset[int], bits: int) -> dict[str, float]:
    """Return the predicted seconds of computing a group and of moving its data, on one thread.

    - `group`, `stored`, `bits`: as for :func:`predicted_s`.
    """
    computing = 0.0
    touched: dict[int, int] = {}
    near = set()
    for each in group.stages:
        computing += _cycles(each, group, bits)
        touched |= touched_bytes(each.stage)
        near |= {handle(store.buffer) for store in each.stage.stores} - stored
    size = sum(count for buffer, count in touched.items() if buffer not in near)
    moving = size / bytes_per_cycle(size)
    return {"computing": computing / CLOCK_HZ, "moving": moving / CLOCK_HZ}


def _cycles(each: RowStage, group: Group, bits: int) -> float:
    """Return the cycles that a stage computes."""
    elements = elements_of(each.stage)
    widest = max(bytes_of(store.buffer.dtype) for store in each.stage.stores)
    lanes = max(1, bits // (8 * widest))
    rows = math.prod(each.stage.axes[place].extent for place in each.outer.values())
    along_rows = group.lane is None
    vectors = rows * pieces(elements // rows, lanes) if along_rows else elements / lanes
    values = each.reduction.elements if each.reduction else [each.stage.value]
    # A result is stored, or added to what is known.
    nodes = vectors * (sum(map(work, values)) + (1 if len(values) == 1 else NODES_OF_TUPLE))
    if each.reduction and along_rows:
        nodes += rows * NODES_OF_HALVES * len(values) * math.log2(lanes)
    return float(nodes * NODE_CYCLES)


def _stored(found: RowProgram) -> frozenset[int]:
    """Return the buffers that are stored whole: outputs, and what another group reads."""
    stored = set()
    for group in found.groups:
        for each in group.stages:
            for store in each.stage.stores:
                others = [
                    other
                    for other in found.groups
                    if other is not group
                    and any(stage.stage.reads(store.buffer) for stage in other.stages)
                ]
                # The stages of an elementwise group are nests of their own.
                if found.program.is_param(store.buffer) or others or not group.reduces:
                    stored.add(handle(store.buffer))
    return frozenset(stored)


def _fusion(groups: Sequence[Group]) -> str:
    """Return what became of the elementwise stages after the last reduction."""
    last = [each.reduction is not None for group in groups for each in group.stages]
    return "none" if last[-1] else "tail"
