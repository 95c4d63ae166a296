"""A function as two, with the result of its reduction in HBM between them.

That is what there is without fusing: the reduction stores its sums, and what follows loads them
again. Each part is scheduled by the rule that knows it; both together are one kernel.

    y = relu(matmul(a, b))      becomes      sums = matmul(a, b)
                                             y    = relu(sums)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from ...tir_tree import handle, substitute, uses
from ..prepare import prepare
from ..trees import nests
from .tiles import is_fixed


@dataclass(frozen=True)
class Apart:
    """A function as two.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
        The function.
    reduction : tvm.tirx.PrimFunc
        Its reduction; the last parameter is what that stores into.
    rest : tvm.tirx.PrimFunc
        What follows, in one block; the last parameter but one is what the reduction stored.
    """

    func: tirx.PrimFunc
    reduction: tirx.PrimFunc
    rest: tirx.PrimFunc


def is_followed(func: tirx.PrimFunc) -> bool:
    """Whether anything follows the only reduction of a function."""
    prepared = prepare(func)
    return prepared is not None and len(_blocks(prepared[0])) > 1


def split_apart(func: tirx.PrimFunc) -> Apart | None:
    """Return a function as two, None where nothing follows its reduction in one block.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> apart = split_apart(workloads.matmul(8, 8, 8, activation="relu"))
    >>> [param.name for param in apart.rest.params]
    ['bias', 'summed', 'y']
    """
    prepared = prepare(func) if is_fixed(func) else None
    if prepared is None:
        return None
    sch, reduction = prepared
    try:
        for block in _blocks(sch)[1:-1]:
            sch.compute_inline(block)
    except s_tir.ScheduleError:
        return None
    root = sch.get(sch.get_sblock("root"))
    parts = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    if len(parts) != 2 or None in nests(root) or len(root.alloc_buffers) != 1:
        return None
    (sums,) = root.alloc_buffers
    if handle(sch.get(reduction).writes[0].source) != handle(sums):
        return None
    *inputs, result = sch.mod["main"].params
    used = [[param for param in inputs if uses(part, param)] for part in parts]
    return Apart(
        func,
        _function(func, [*used[0], sums], [parts[0]]),
        _function(func, [*used[1], sums, result], [parts[1]]),
    )


def joined(apart: Apart, reduction: s_tir.Schedule, rest: s_tir.Schedule) -> s_tir.Schedule:
    """Return one function that does both, one after the other.

    Parameters
    ----------
    apart : Apart
        What was scheduled.
    reduction, rest : tvm.s_tir.Schedule
        Its two functions, scheduled.

    Returns
    -------
    tvm.s_tir.Schedule
        For :func:`fuse_epilogue.neuron.emit`, with the parameters of the function.
    """
    first, second = reduction.mod["main"], rest.mod["main"]
    sums = first.params[-1]
    between = tirx.decl_buffer(sums.ty.shape, sums.ty.dtype, sums.name)
    # Both have new parameters, in the order of the old ones; what both read is that of the second.
    inputs = list(zip(apart.reduction.params[:-1], first.params[:-1], strict=True))
    new = dict(inputs) | dict(zip(apart.rest.params, second.params, strict=True))
    table = {sums: between, second.params[-2]: between}
    table |= {own: new[param] for param, own in inputs}
    roots = [func.body.block for func in (first, second)]
    parts = [substitute(root.body, table) for root in roots]
    allocated = [*roots[0].alloc_buffers, *roots[1].alloc_buffers, between]
    # What nobody reads is a parameter of neither.
    params = [new.get(param, param) for param in apart.func.params]
    return s_tir.Schedule(_function(apart.func, params, parts, allocated))


def _blocks(sch: s_tir.Schedule) -> list[Any]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _function(
    like: tirx.PrimFunc, params: Sequence[Any], parts: Sequence[Any], allocated: Sequence[Any] = ()
) -> tirx.PrimFunc:
    """Return a function of some statements, with the attributes of another one."""
    flat = [s for part in parts for s in (part.seq if isinstance(part, tirx.SeqStmt) else [part])]
    body = tirx.SeqStmt(flat) if len(flat) > 1 else flat[0]
    root = s_tir.SBlock([], [], [], "root", body, None, list(allocated))
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root), like.ret_type, like.attrs)
