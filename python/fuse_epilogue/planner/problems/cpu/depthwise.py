"""Finds a depthwise convolution along one dimension in a function, for a processor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from tvm import s_tir

from ....kernels.cpu.depthwise import forms
from ....kernels.cpu.depthwise.contiguous_conv import streams
from ....kernels.cpu.depthwise.forms import Form
from ....kernels.cpu.depthwise.loops import channel_axis
from ....kernels.cpu.depthwise.row_limits import why_not_rows
from ....kernels.cpu.depthwise.words import VNNI, why_not_words
from ....recognize.depthwise import DepthwiseConv
from ....rewrites.epilogue import NONE, Epilogue, fuse
from ....rewrites.fused_conv import find_fused_conv
from ....tir.walk import uses
from ...machines.cpu import Cpu
from ..patterns import match_conv
from ..request import Request
from .depthwise_problem import (
    ELEMENTS,
    NAMES,
    ROWS,
    TILES,
    WORDS,
    ConvProblem,
    Way,
    follow,
)


def find_conv(request: Request) -> ConvProblem | None:
    """Return the depthwise convolution that a function is, None if it is something else.

    - Raises ValueError: the function has a reduction, and an axis of size 0.
    """
    matched = match_conv(request)
    if matched is None:
        return None
    sch, conv, found, fields = matched
    machine, epilogue = request.machine, request.epilogue
    assert epilogue is not None, "it was matched"
    # Something follows that only a part of can be fused: the rule knows better than not to fuse.
    if epilogue.blocks and epilogue.modes == (NONE,):
        return None
    channels = channel_axis(found)
    lanes = _lanes(machine.lanes(fields["bits"]))
    rows, streamed, why = _rows(sch, conv, epilogue, lanes, machine)
    others = _others(sch, conv, epilogue, lanes)
    if not rows | others:
        return None
    return ConvProblem(
        **fields,
        ways=rows | others,
        streamed=streamed,
        why_not_rows=why,
        neighbours=0 if channels is None else int(channels.dom.extent),
        stride=found.stride,
        shared=_sharing(found),
    )


def _sharing(found: DepthwiseConv) -> int:
    """Return how many channels of the result are sums over the same windows."""
    alike = (axis for axis in found.outer if not uses(found.data, axis.var))
    return prod(int(axis.dom.extent) for axis in alike)


def _lanes(widest: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((max(1, widest // 2), widest)))


def _rows(
    sch: s_tir.Schedule, conv: Any, epilogue: Epilogue, lanes: Sequence[int], machine: Cpu
) -> tuple[frozenset[Way], frozenset[Way], str]:
    """Return ways that are rows, those of them that can be streamed, and why there are none."""
    name, possible, streamed = sch.get(conv).name_hint, set(), set()
    why = "what follows does not compute one element from each sum"
    for mode in epilogue.modes:
        if mode == NONE and epilogue.blocks:
            continue
        copy = sch.copy()
        fuse(copy, name, mode)
        fused = find_fused_conv(copy, copy.get_sblock(name))
        if fused is None:
            continue
        for each in lanes:
            against = why_not_rows(fused, each)
            if against is not None:
                why = against
                continue
            possible.add((mode, ROWS, each))
            if machine.streams and streams(fused, each):
                streamed.add((mode, ROWS, each))
            wide = each * VNNI.count
            if (
                each > machine.dot_products
                or why_not_rows(fused, wide)
                or why_not_words(fused, each)
            ):
                continue
            possible.add((mode, WORDS, each))
            if machine.streams and streams(fused, wide):
                streamed.add((mode, WORDS, each))
    return frozenset(possible), frozenset(streamed), "" if possible else why


def _others(
    sch: s_tir.Schedule, conv: Any, epilogue: Epilogue, lanes: Sequence[int]
) -> frozenset[Way]:
    """Return ways that are tiles or elements: those that TVM's primitives do not refuse."""
    name, possible = sch.get(conv).name_hint, set()
    for mode, (form, some) in product(epilogue.modes, ((TILES, lanes), (ELEMENTS, lanes[-1:]))):
        point = {"fusion": mode, "lanes": some[0], "threads": 2}
        copy = sch.copy()
        try:
            forms.written(copy, copy.get_sblock(name), Form(NAMES[form], some[0]), follow(point))
        except s_tir.ScheduleError:
            continue
        possible |= {(mode, form, each) for each in some}
    return frozenset(possible)
