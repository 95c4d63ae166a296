"""The forms of a depthwise convolution that :mod:`fuse_epilogue.schedules.cuda` has."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir

from ....kernels.cuda.depthwise.channels import find_channels, tile_of
from ....kernels.cuda.depthwise.contiguous_conv import find_rows, vectors_of
from ....kernels.cuda.depthwise.rule import reads_result
from ....kernels.cuda.fusing import fuse_as_one
from ....rewrites.epilogue import NONE, Epilogue
from ....rewrites.fused_conv import FusedConv, find_fused_conv
from ....tir.affine import as_constant

LOOPS, ELEMENTS, ROWS, CHANNELS = 0, 1, 2, 3
LABELS = ("loops", "elements", "rows", "channels")
#: Parts of the result that a thread may compute: vectors of a row, or columns of some channels.
_PARTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Form:
    """A form that is possible, with some parts for each thread.

    - `lanes`: elements of a vector.
    - `threads`: axes of all blocks.
    - `loads`: vectors of x that a thread loads.
    """

    form: int
    parts: int
    lanes: int
    threads: int
    loads: int


def one_pass_forms(
    sch: s_tir.Schedule, conv: Any, epilogue: Epilogue
) -> tuple[tuple[int, ...], tuple[Form, ...]]:
    """Return the ways to fuse that make one pass, and the forms of that pass."""
    name, modes = sch.get(conv).name_hint, []
    forms: tuple[Form, ...] = ()
    for mode in epilogue.modes:
        if mode == NONE and epilogue.blocks:
            continue
        copy = sch.copy()
        fuse_as_one(copy, name, mode)
        fused = find_fused_conv(copy, copy.get_sblock(name))
        if fused is None or reads_result(fused):
            continue
        modes.append(mode)
        # They depend on what is read and where y is: neither on how the sum starts.
        forms = _forms(fused)
    return tuple(modes), forms


def _forms(fused: FusedConv) -> tuple[Form, ...]:
    conv = fused.conv
    outer = prod(as_constant(axis.dom.extent) for axis in conv.outer)
    found = [Form(ELEMENTS, 1, 1, outer * conv.columns, conv.taps)]
    rows = find_rows(fused)
    if rows is not None:
        count, chunks = vectors_of(fused, rows), rows.last - rows.first + 1
        found += [
            Form(ROWS, parts, rows.lanes, outer * -(-count // parts), parts * chunks)
            for parts in _PARTS
            if parts <= count
        ]
    channels = find_channels(fused)
    for parts in _PARTS if channels is not None else ():
        tile = tile_of(fused, channels, parts)
        if tile is not None and parts < 2 * conv.columns:
            reach = (parts - 1) * conv.stride + (conv.taps - 1) * conv.dilation + 1
            total = outer // tile[0] * -(-conv.columns // parts)
            loads = min(reach, parts * conv.taps)
            found.append(Form(CHANNELS, parts, tile[0], total, loads))
    return tuple(found)
