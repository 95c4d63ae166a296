"""Functions on streams, for CUDA: states, packed sequences, updates in place.

    checks            a kernel each, which stops the program where one does not hold
    each result       a kernel, of a thread for each element
    an update         one kernel, of a thread for each channel of a stream

An element is written out with its few taps, so that a thread needs no other thread's results.
Columns that several threads load come from the cache.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, prim

from ...recognize.stages import Axis
from ...recognize.stream_elements import read_element
from ...recognize.stream_update import read_update
from ...recognize.streams import (
    Piece,
    Streams,
    is_mask,
    is_of_state,
    is_sum,
    read_streams,
)
from ...tir.build import in_root, sequence
from ...tir.expressions import is_guard
from ...tir.walk import parts_of
from ..scheduled import Scheduled
from ..stream.elements import stored, updated_channel
from ..stream.several_sums import Part, several
from .launch import in_grid


def schedule(func: tirx.PrimFunc) -> Scheduled | None:
    """Schedule a function on streams that has one sum.

    - `func`: not scheduled.
    - Returns: None if the function has neither a check nor a second result nor a choice of what a
      tap reads, if it has several sums, if an element is too long to write out, or if two threads
      might touch the same element of a state.
    """
    streams = read_streams(func)
    if streams is None or not (streams.updated() or _is_stream(streams)):
        return None
    checks = _checks(streams)
    if checks is None:
        return None
    update = read_update(streams) if streams.updated() else None
    if update is not None:
        kernels: list[Any] | None = [in_grid(update.axes, updated_channel(update))]
    else:
        kernels = None if streams.updated() else _elements(streams)
    if kernels is None:
        return None
    kind = "stream" if update is None else "stream update"
    return Scheduled(func.with_body(in_root(sequence([*checks, *kernels]))), kind, "tail")


def schedule_elements(func: tirx.PrimFunc) -> Scheduled | None:
    """Schedule a function of which each element is written out: a thread for each.

    - `func`: not scheduled, without checks.
    - Returns: None if an element is too long to write out, or a parameter is updated in place.
    """
    streams = read_streams(func)
    if streams is None or streams.updated() or streams.checks:
        return None
    kernels = _elements(streams)
    if kernels is None:
        return None
    return Scheduled(func.with_body(in_root(sequence(kernels))), "elements", "tail")


def _elements(streams: Streams) -> list[Any] | None:
    """Return a kernel for each result, of a thread for each element; None if one is too long."""
    elements = [read_element(streams, result) for result in streams.results]
    known = [each for each in elements if each is not None]
    if len(known) < len(elements):
        return None
    return [in_grid(each.axes, stored(each)) for each in known]


def schedule_sums(func: tirx.PrimFunc, part: Part) -> Scheduled | None:
    """Schedule a function with several sums, such as gradients, sum by sum.

    - `func`: not scheduled.
    - `part`: schedules a function with one sum or none; it must know every part.
    - Returns: None if the function updates a state in place or has one sum, or if `part` does not
      know one of its parts: without a grid of threads it could not run.
    """
    streams = read_streams(func)
    if streams is None or streams.updated():
        return None
    checks = _checks(streams)
    if checks is None or sum(map(is_sum, streams.pieces)) < 2:
        return None
    unknown: list[tirx.PrimFunc] = []

    def known(each: tirx.PrimFunc, constants: frozenset[int]) -> Scheduled | None:
        found = part(each, constants)
        if found is None:
            unknown.append(each)
        return found

    made = several(streams, known, checks)
    return None if unknown else made


def _is_stream(streams: Streams) -> bool:
    """Whether a function with one sum has states or sequences."""
    if sum(map(is_sum, streams.pieces)) != 1:
        return False
    if len(streams.results) > 1 or streams.checks:
        return True
    calls = (call for each in streams.pieces for call in parts_of(each.block.body, Call))
    return any(is_guard(c) and (is_of_state(c) or is_mask(c.args[0])) for c in calls)


def _checks(streams: Streams) -> list[Any] | None:
    """Return a kernel for each check; None if one of them has a symbolic size."""
    made = [_check(each) for each in streams.checks]
    return None if any(each is None for each in made) else made


def _check(piece: Piece) -> Any:
    """Return a kernel that stops the program where a check does not hold.

    A thread cannot raise an error: it prints the message and traps. CUDA reports a failed launch,
    and executes no later kernel of the program.
    """
    axes = []
    for axis in piece.block.iter_vars:
        if not isinstance(axis.dom.extent, prim.IntImm) or int(axis.dom.min) != 0:
            return None
        axes.append(Axis(axis.var, int(axis.dom.extent)))
    asserted = piece.block.body
    message = "".join(str(part.value) for part in asserted.message_parts)
    text = f"{asserted.error_kind.value}: {message}\\n"
    stop = tirx.SeqStmt(
        [
            tirx.Evaluate(tirx.call_extern("int32", "printf", "%s", text)),
            tirx.Evaluate(tirx.call_extern("void", "__trap")),
        ]
    )
    return in_grid(axes, tirx.IfThenElse(prim.Not(asserted.condition), stop, None))
