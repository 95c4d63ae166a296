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

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, prim

from ..tir.affine import as_constant
from ..tir.build import with_unique_names
from ..tir.nest import all_names, child_blocks, child_names, nests
from ..tir.walk import handle, parts_of, substitute, substitute_part
from .access_regions import with_accessed_regions
from .branches import with_branches
from .shrink_buffers import without_unread
from .step import rewrite

#: Reason that excludes all forms.
NOT_PREPARED = (
    "it must have exactly one reduction, in loops over all of its axes and not scheduled, and "
    "before it only blocks that can be inlined"
)


#: A schedule of a function in which only its reduction and what follows it are left, and that
#: reduction; None where there is none.
Prepared = tuple[s_tir.Schedule, Any] | None
#: What makes one of a function.
Prepare = Callable[[tirx.PrimFunc], Prepared]


def prepare(func: tirx.PrimFunc) -> Prepared:
    """Inline the blocks before the only reduction of a function; drop elements that are never read.

    - `func`: not scheduled.
    - Returns: the schedule (the function is its "main", and its trace begins with `func` as it is)
      and the reduction, which has a loop for each of its axes, in their order, and no T.Let around
      anything. None if the function has not exactly one reduction, if that is not in plain loops
      over all of its axes, if something before it cannot be inlined, if a buffer has two names, or
      if an axis of a block has the size 0.
    """
    ordered = in_order(func)
    if ordered is None:
        return None
    sch = s_tir.Schedule(func)
    if not ordered.same_as(func):
        rewrite(sch, sch.get_sblock("root"), "prepare")
    found = _only_reduction(ordered)
    if found is None:
        return None
    before, reduction = found
    try:
        for name in reversed(before):
            sch.compute_inline(sch.get_sblock(name))
    except s_tir.ScheduleError:
        return None
    return sch, sch.get_sblock(reduction)


def in_order(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """Return what :func:`prepare` makes of a function before it inlines: the rewriting "prepare".

    - `func`: not scheduled.
    - Returns: `func` itself if there is nothing to do; None where :func:`prepare` returns None,
      unless only because something cannot be inlined.
    """
    if _alias_in(func) is not None or _binds_effects(func) or why_empty(func):
        return None
    if _why_stream(func):
        return None
    if _only_reduction(func) is None or all_names(func.body).count("root") != 1:
        return None
    plain = with_accessed_regions(with_branches(_without_bindings(with_unique_names(func))))
    return _in_order(without_unread(plain))


def why_not_prepared(func: tirx.PrimFunc) -> str:
    """Return why :func:`prepare` returns None for a function."""
    alias = _alias_in(func)
    if alias is not None:
        return f"its buffer '{alias}' is another name for memory that has one: use that one alone"
    if _binds_effects(func):
        return "it binds with T.Let what may have side effects"
    return why_empty(func) or _why_stream(func) or NOT_PREPARED


def _why_stream(func: tirx.PrimFunc) -> str:
    """Return which block has to stay where it is; "" if there is none.

    A block that writes nothing only checks something, and must do so first. A parameter that is
    read before it is written must not be read by the blocks after that, as inlining would have it;
    a reduction is not inlined.
    """
    read: dict[int, str] = {}
    for block in child_blocks(func):
        if not block.writes:
            return f"'{block.name_hint}' computes nothing: it is a check of its own"
        for region in block.writes:
            reader = read.get(handle(region.source))
            if reader is not None:
                return f"'{block.name_hint}' writes '{region.source.name}', which '{reader}' reads"
        own = {handle(region.source) for region in block.writes}
        for region in block.reads if block.init is None else ():
            if handle(region.source) not in own:
                read.setdefault(handle(region.source), str(block.name_hint))
    return ""


def why_empty(func: tirx.PrimFunc) -> str:
    """Return which axis of a block has the size 0, and what to do; "" if none has.

    Such a function cannot be divided into tiles, or into what threads compute.
    """
    for block in child_blocks(func):
        for axis in block.iter_vars:
            size = as_constant(axis.dom.extent)
            if isinstance(size, int) and size < 1:
                return (
                    f"axis '{axis.var.name}' of '{block.name_hint}' has the size {size}: there is "
                    "nothing to schedule; compile the function as it is, or use sizes of 1 or more"
                )
    return ""


def _alias_in(func: tirx.PrimFunc) -> str | None:
    """Return a name that stands for (a part of) another buffer, None if there is none."""
    found = parts_of(func.body, tirx.DeclBuffer)
    names = [declared.buffer.name for declared in found]
    blocks = parts_of(func.body, s_tir.SBlock)
    names += [match.buffer.name for block in blocks for match in block.match_buffers]
    return names[0] if names else None


# TVM's kinds of calls without an effect: an annotation, a pure function, a read.
_NO_EFFECT = (0, 1, 2)


def _binds_effects(func: tirx.PrimFunc) -> bool:
    """Whether the value of a T.Let must be computed once."""
    calls = [call for binding in _bindings(func) for call in parts_of(binding.value, Call)]
    return any(call.op.get_attr("TCallEffectKind") not in _NO_EFFECT for call in calls)


def _bindings(func: tirx.PrimFunc) -> list[Any]:
    return parts_of(func.body, prim.Let)


def _without_bindings(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function with values in place of what T.Let binds: a rule may write them twice."""
    if not _bindings(func):
        return func

    def value(binding: Any) -> Any:
        return substitute(binding.body, {binding.var: binding.value})

    return func.with_body(tvm_ffi.structural_map(func.body, (prim.Let, value)))


def _only_reduction(func: tirx.PrimFunc) -> tuple[list[str], str] | None:
    """Return the names of the blocks before the only reduction of a function, and its own."""
    blocks = child_blocks(func)
    places = [place for place, block in enumerate(blocks) if block.init is not None]
    if len(places) != 1:
        return None
    names = child_names(func)
    return names[: places[0]], names[places[0]]


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
