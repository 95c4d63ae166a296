"""The problem that a plan was made for, found again in a function."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from .._arguments import prim_func
from . import validate_plan
from .backends import backend_of
from .plan_record import ANY, PlanRecord
from .problems.problem import Problem
from .problems.request import Request


def problem_of(plan: PlanRecord, func: tirx.PrimFunc | s_tir.Schedule) -> Problem:
    """Return the problem that a function is, if a plan is for it.

    - Raises TypeError: `func` is neither a PrimFunc nor a Schedule.
    - Raises ValueError: the plan is for another function, or was searched in another space.
    """
    func = prim_func("func", func)
    if plan.known is not None and plan.known.func.same_as(func):
        return plan.known
    kind = backend_of(plan.machine).kind(plan.kind)
    request = Request(func, plan.machine, plan.finite, plan.round_shares)
    problem = None if kind is None else kind.find(request)
    if problem is None:
        raise ValueError(f"this plan is for a problem of kind '{plan.kind}'; plan again")
    if (problem.sizes, problem.dtype) != (plan.sizes, plan.dtype):
        raise ValueError(
            f"this plan is for {plan.sizes} of {plan.dtype}, not for {problem.sizes} of "
            f"{problem.dtype}; plan again"
        )
    if plan.identity not in (ANY, identity_of(func)):
        raise ValueError(
            f"this plan is for another function of kind '{plan.kind}' and of these sizes: it "
            "computes something else, or reads its parameters otherwise; plan again"
        )
    validate_plan.check_for(plan, problem)
    return problem


def identity_of(func: tirx.PrimFunc) -> str:
    """Return what tells a function from others: a hash of what it computes, and how.

    The hash is the same in every process, and does not depend on names or attributes.
    """
    for name in dict(func.attrs or {}):
        func = func.without_attr(name)
    return f"{tvm_ffi.structural_hash(func) % 2**64:016x}"
