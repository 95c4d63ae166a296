"""Merges the fusions of earlier runs of the pass with those of this one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import prim

from .fuse_one import Fused
from .report import FUNCTION_ATTR, ReductionReport, reductions_from


def fused_before(func: tirx.PrimFunc) -> list[ReductionReport]:
    """Return what earlier runs fused of a function: it says so itself, whatever its name is now.

    What cannot be read says nothing: the attribute travels in files, where anybody can change it.
    """
    attrs = func.attrs
    text = attrs.get(FUNCTION_ATTR) if attrs is not None else None
    if text is None:
        return []
    try:
        found = list(reductions_from(json.loads(str(text))))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return []
    return found if all(map(_is_sound, found)) else []


def _is_sound(each: ReductionReport) -> bool:
    """Whether the numbers are such that something can be added to them."""
    sizes = (each.bytes_saved, each.bytes_removed)
    return all(size is None or isinstance(size, int) for size in sizes)


def bytes_removed(before: tirx.PrimFunc, now: Fused) -> int | None:
    """Return the bytes of the intermediates that a fusion removed; None if one is a symbol."""
    if not any(step.removed for step in now.fusion.steps):
        return 0
    gone = list((_intermediates(before) - _intermediates(now.func)).elements())
    sizes = [size for _, size in gone]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _intermediates(func: tirx.PrimFunc) -> Counter[tuple[str, int | None]]:
    """Return names and bytes of what a function allocates: two buffers may be called the same."""
    return Counter((str(each.name), _bytes(each)) for each in func.body.block.alloc_buffers)


def _bytes(buffer: Any) -> int | None:
    dtype = tvm.DataType(str(buffer.ty.dtype))
    size = (int(dtype.bits) * int(dtype.lanes) + 7) // 8
    for extent in buffer.ty.shape:
        if not isinstance(extent, prim.IntImm):
            return None
        size *= int(extent)
    return size


def with_earlier_bytes(now: Fused, removed: int | None, before: ReductionReport | None) -> Fused:
    """Return a fusion with the bytes that are saved against the function as nothing was fused.

    A fusion counts all buffers that it removed, and all that are held in rows after it, whether
    this run or an earlier one did so: of the savings of earlier runs, only removed buffers are
    added.

    - `removed`: the bytes that it removed, see :func:`bytes_removed`.
    - `before`: fusions of the reduction in earlier runs.
    """
    if before is None or not before.fused:
        return now
    sizes = (before.bytes_saved, before.bytes_removed, removed, now.balance.bytes_saved)
    saved = None
    if None not in sizes:
        saved = (before.bytes_removed or 0) + (now.balance.bytes_saved or 0)
    return replace(now, balance=replace(now.balance, bytes_saved=saved))


def with_earlier(now: ReductionReport, before: ReductionReport) -> ReductionReport:
    """Return what two runs did with a reduction; the bytes of `now` are of both already.

    An epilogue that was left as a tail, and of which `now` tells again, has become what `now` says.
    Parts that were taken out of it before stay where they are.
    """
    if not before.fused:
        return now
    if not now.fused:
        return before
    again = {step.epilogue for step in now.fusion.steps}
    steps = []
    for step in before.fusion.steps:
        if step.tail and step.epilogue in again:
            if not (step.absorbed or step.distributed):
                continue
            step = replace(step, tail="", reason="")
        steps.append(step)
    sizes = (before.bytes_removed, now.bytes_removed)
    return replace(
        now,
        fusion=replace(now.fusion, steps=(*steps, *now.fusion.steps)),
        bytes_removed=None if None in sizes else sum(size or 0 for size in sizes),
    )
