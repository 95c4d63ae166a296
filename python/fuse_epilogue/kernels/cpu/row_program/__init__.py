"""Row programs: reductions and elementwise work along the same rows, a row after the other.

    for the outer axes, in parallel:
        for vectors of a row: highest = max(highest, x)                one pass
        for vectors of a row: e = exp(x - highest), total += e         one pass: its sum needs only
        for vectors of a row: y = e / total                            the element just computed

Values that later passes of a row need are in a buffer of a row. A reduction has several
accumulators, each a vector; at the end they are combined by halves. Where neighbours in memory are
of different rows, a vector is of as many rows, and nothing is combined over lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm.target import Target

from ....recognize.row_program import Group, RowProgram, read_row_program
from ....recognize.row_stages import elements_of, node_count
from ....recognize.stages import Program
from ....targets import vector_bits
from ....tir.build import with_fields
from ....tir.walk import handle
from ...scheduled import Scheduled
from .. import elementwise
from ..loops import FlatViews, sequence
from .group import GroupKernel

__all__ = ["predicted_s", "schedule"]

#: Seconds of a node of an expression, for an element of a vector of one bit: measured for softmax
#: and layer norm, from the second cache.
NODE_BIT_S = 3e-9


def schedule(
    program: Program,
    target: Target,
    threads: int = 1,
    constants: frozenset[int] = frozenset(),  # noqa: ARG001 - every kind has the same parameters
) -> Scheduled | None:
    """Schedule a function of reductions along rows, and elementwise work between them.

    Parameters
    ----------
    program : Program
    target : tvm.target.Target
        Target of kind "llvm".
    threads : int
        Number of threads that parallel loops are made for.
    constants : frozenset[int]
        Unused here.

    Returns
    -------
    Scheduled or None
        None if the function has no reduction, or one that cannot be regrouped.

    Example
    -------
    >>> from tvm import te, topi
    >>> from fuse_epilogue.recognize.stages import read_program
    >>> from fuse_epilogue.schedules import host
    >>> x = te.placeholder((7, 33), "float32")
    >>> func = te.create_prim_func([x, topi.nn.softmax(x)])
    >>> schedule(read_program(func), host(1)).kind
    'row program'
    """
    found = read_row_program(program)
    if found is None:
        return None
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
    bits = vector_bits(target)
    nests = []
    predicted = 0.0
    for group in found.groups:
        stages = [each.stage for each in group.stages]
        if group.reduces:
            predicted += predicted_s(group, bits) / max(1, threads)
            nests.append(GroupKernel(group, stored, views, bits, threads).body())
        else:
            lanes = max(1, bits // 32)
            predicted += sum(elementwise.predicted_s(stage, lanes) for stage in stages)
            nests += [elementwise.nest(stage, views, lanes, threads) for stage in stages]
    body = sequence([*allocated, *views.declare(sequence(nests))])
    func = with_fields(program.func, body=body)
    return Scheduled(func, "row program", _fusion(found.groups), predicted_s=predicted)


def predicted_s(group: Group, bits: int) -> float:
    """Return the seconds that a group is predicted to take on one thread.

    Parameters
    ----------
    group : Group
    bits : int
        Bits of a vector.
    """
    seconds = 0.0
    for each in group.stages:
        values = each.reduction.elements if each.reduction else [each.stage.value]
        nodes = 1 + sum(map(node_count, values))
        seconds += elements_of(each.stage) * nodes * NODE_BIT_S / bits
    return seconds


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
