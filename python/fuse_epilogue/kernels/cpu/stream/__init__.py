"""Kernels for functions on streams: states, packed sequences, updates in place.

The columns of a convolution that see nothing of a state or of another sequence are nearly all of
them. They are computed by the kernel that computes a convolution without either; the others are
computed again, each by the expression of one element, and the states are copied:

    checks            assertions on integers of the call
    core              y, with zeros for the state, across the borders of sequences
    repairs           y where that is not the same: the first columns, those after a border
    the other results final_state = the last columns

A function that updates a state in place is one pass over it, see :mod:`.update`. Sums of
gradients over columns are in :mod:`.lanes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

from ....recognize.defined import analyzer_of, may_be_discarded
from ....recognize.stream_elements import read_element
from ....recognize.streams import (
    Piece,
    Streams,
    is_mask,
    is_of_state,
    is_sum,
    read_streams,
)
from ....tir.build import in_root, sequence
from ....tir.expressions import is_guard
from ....tir.walk import parts_of, same
from ...scheduled import Scheduled
from ...stream.several_sums import Part, several
from .repairs import Repairs, repairs
from .update import update

#: Schedules the core of a function; None if it does not know it.
Core = Callable[[tirx.PrimFunc], Scheduled | None]


def schedule(func: tirx.PrimFunc, threads: int, core: Core) -> Scheduled | None:
    """Schedule a function on streams that has one sum.

    - `func`: not scheduled.
    - `threads`: number of threads that parallel loops are made for.
    - `core`: schedules a convolution without states and sequences.
    - Returns: None if the function has neither a check nor a second result nor a state, or several
      sums, if its sum needs another result, if `core` does not know it, or if an element is too
      long to write out.
    """
    streams = read_streams(func)
    if streams is None:
        return None
    if streams.updated():
        return update(streams, threads)
    sums = [each for each in streams.pieces if is_sum(each)]
    owners = [r for r in streams.results if any(each in sums for each in streams.needed(r))]
    if len(sums) > 1 or len(owners) != 1:
        return None
    pieces = streams.needed(owners[0])
    others = [r for r in streams.results if not same(r, owners[0])]
    if any(streams.writer(r) in pieces for r in others):
        return None  # There is no core with a single result.
    plain = [_without_streams(each) for each in pieces]
    changed = any(a is not b.statement for a, b in zip(plain, pieces, strict=True))
    if not (changed or streams.checks or len(streams.results) > 1):
        return None
    inner = streams.function(pieces).body.block.alloc_buffers
    scheduled = core(func.with_body(in_root(sequence(plain), inner)))
    if scheduled is None:
        return None
    repaired: Repairs | None = Repairs()
    if changed:
        element = read_element(streams, owners[0])
        repaired = None if element is None else repairs(element, threads)
    if repaired is None:
        return None
    sides = [_side(streams, r) for r in others]
    return Scheduled(
        _joined(streams, scheduled.func, repaired.statements, sides),
        f"stream of {scheduled.kind}",
        scheduled.fusion,
        scheduled.predicted_s + repaired.seconds,
        ways=scheduled.ways,
    )


def schedule_sums(
    func: tirx.PrimFunc,
    part: Part,
    *,
    single: bool = False,
    constants: frozenset[int] = frozenset(),
) -> Scheduled | None:
    """Schedule a function with several sums, such as gradients, sum by sum.

    A kind that computes several sums in one kernel, such as attention, is to be tried first.

    - `func`: not scheduled.
    - `part`: schedules a function with one sum.
    - `single`: whether a function of constant sizes with one sum is cut as well, where it is
      followed by work on more elements, such as the gates of an image's channels.
    - `constants`: indices of the parameters that are constants at every call.
    - Returns: None if the function updates a state in place, has one sum or none that is to be cut,
      or if `part` cannot schedule any part.
    """
    streams = read_streams(func)
    if streams is None or streams.updated():
        return None
    sums = sum(map(is_sum, streams.pieces))
    if sums < (1 if single else 2):
        return None
    checks = [each.statement for each in streams.checks]
    return several(streams, part, checks, single=sums == 1, constants=constants)


def _without_streams(piece: Piece) -> Any:
    """Return a statement without masks of sequences, and with zeros for a state.

    Nothing is claimed of its values: wherever the two are not the same, the repairs follow. Without
    a mask its operand is computed everywhere, so a mask stays unless the operand is defined there.
    """
    analyzer = analyzer_of(piece.block.iter_vars)

    def choice(node: Any) -> Any:
        if not is_guard(node):
            return node
        condition, inside, outside = node.args
        if is_mask(condition) and may_be_discarded(inside, analyzer):
            return inside
        if is_of_state(node):
            return tirx.if_then_else(condition, inside, tirx.const(0, inside.ty.dtype))
        return node

    if not any(map(is_guard, parts_of(piece.block.body, Call))):
        return piece.statement
    made = tvm_ffi.structural_map(piece.statement, (Call, choice))
    return piece.statement if tvm_ffi.structural_equal(made, piece.statement) else made


def _side(streams: Streams, result: Any) -> Any:
    """Return the root block of the statements that a result needs, copies inlined."""
    pieces = streams.needed(result)
    sch = s_tir.Schedule(streams.function(pieces))
    for each in pieces[:-1]:
        if each.block.init is None:
            sch.compute_inline(sch.get_sblock(str(each.block.name_hint)))
    return sch.mod["main"].body.block


def _joined(
    streams: Streams, core: tirx.PrimFunc, repaired: Sequence[Any], others: Sequence[Any]
) -> tirx.PrimFunc:
    """Return the whole function: checks, core, repairs, the other results."""
    body = [each.statement for each in streams.checks]
    allocated: list[Any] = []
    if isinstance(core.body, s_tir.SBlockRealize):
        body.append(core.body.block.body)
        allocated += core.body.block.alloc_buffers
    else:
        body.append(core.body)
    body += repaired
    for block in others:
        body.append(block.body)
        allocated += block.alloc_buffers
    return core.with_body(in_root(sequence(body), allocated))
