"""Brings a function around one reduction into the form that the rules schedule.

What there is, by pattern and not by name: one reduction, blocks before it that copy, pad or
reshape, and blocks after it that compute on its result. What is wanted: the reduction reads its
input itself, where there is one, and computes only what is read.

    pad_temp = pad(x)                                conv = conv of (x if inside else 0), cut
    conv     = conv of pad_temp          becomes     y    = f(conv)
    cut      = conv[:, :, :w]
    y        = f(cut)
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from .convolution import substitute_part
from .trees import nests
from .unread import without_unread


def prepare(func: tirx.PrimFunc) -> tuple[s_tir.Schedule, Any] | None:
    """Inline what stands before the only reduction of a function; leave out what nobody reads.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.

    Returns
    -------
    tuple[tvm.s_tir.Schedule, SBlockRV] or None
        The schedule (the function is its "main") and the reduction, which has a loop for each of
        its axes, in their order. None if the function has not exactly one reduction, if that is
        not in plain loops over all of its axes, or if something before it cannot be inlined.

    Example
    -------
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> sch, conv = prepare(depthwise_conv1d(8, 512, 2048, 3))
    >>> print(sch.fuse_reduction_epilogue(conv))
    'conv' absorbed bias[v_c] from 'bias' into T.init; 'summed' is gone.
    """
    if _only_reduction(s_tir.Schedule(func)) is None:
        return None
    ordered = _in_order(without_unread(func))
    sch = s_tir.Schedule(ordered) if ordered is not None else None
    found = _only_reduction(sch) if sch is not None else None
    if sch is None or found is None:
        return None
    before, reduction = found
    try:
        for block in reversed(before):
            sch.compute_inline(block)
    except s_tir.ScheduleError:
        return None
    return sch, reduction


def _only_reduction(sch: s_tir.Schedule) -> tuple[list[Any], Any] | None:
    """Return the blocks before the only reduction of a function without nested blocks, and it."""
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except s_tir.ScheduleError:
        return None
    places = [place for place, rv in enumerate(blocks) if sch.get(rv).init is not None]
    if len(places) != 1:
        return None
    return blocks[: places[0]], blocks[places[0]]


def _in_order(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """Return a function whose reduction has one loop for each axis, in the order of the axes.

    None if the reduction does not run over all of its axes in plain loops.
    """
    for nest in nests(func.body.block):
        if nest is None or nest.realize.block.init is None:
            continue
        values = list(nest.realize.iter_values)
        statements = [*nest.loops, nest.realize]
        if len(nest.loops) == len(values) and all(
            value.same_as(loop.loop_var) for value, loop in zip(values, nest.loops, strict=True)
        ):
            return func
        if not all(a.body.same_as(b) for a, b in zip(statements, statements[1:], strict=False)):
            return None
        axes = nest.realize.block.iter_vars
        fresh = [tirx.Var(axis.var.name, axis.var.ty) for axis in axes]
        body: tirx.Stmt = s_tir.SBlockRealize(fresh, True, nest.realize.block)
        for var, axis in reversed(list(zip(fresh, axes, strict=True))):
            body = tirx.For(var, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, body)
        return func.with_body(substitute_part(func.body, statements[0], body))
    return None
