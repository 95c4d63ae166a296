"""Chooses a schedule for a function: :func:`plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx
from tvm.target import Target

from .._arguments import flag, prim_func
from .._log import logger
from ..neuron.machine import Machine
from .backends import backend_of, check_permitted, described
from .json_schema import whole_number
from .machines.gpu import Gpu
from .measurement.profile import Profile
from .plan_problem import identity_of
from .plans import Plan
from .problems.cost import Weights
from .problems.request import Request
from .search.search import EXHAUSTIVE, Found, search
from .search.trials import trials


class UnknownFunctionError(ValueError):
    """A function is of no kind that the planner knows on a machine."""


def plan(
    func: tirx.PrimFunc | s_tir.Schedule,
    target: Target | Gpu | Machine | str | dict[str, Any] | None = None,
    *,
    profile: Profile | None = None,
    limit: int = EXHAUSTIVE,
    finite: bool = False,
    round_shares: bool = False,
    measure: int = 0,
    on_trial: Callable[[int, int], Any] | None = None,
) -> Plan:
    """Choose a schedule for a function by what it costs on a machine.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
        Not scheduled, with numbers for its sizes. A schedule means the function that it works on.
    target : tvm.target.Target, Gpu, Machine, str or dict, optional
        This machine if None, or ``"host"`` or ``"cpu"``; else a target of kind "llvm". Of kind
        "cuda", or a GPU by its name such as ``"h100"``, see :func:`.machines.gpu.gpu`: the cost of
        a kernel there is predicted from NVIDIA's documents, and was measured on no GPU. Or
        ``"trn1"`` or ``"trn2"``, for :func:`fuse_epilogue.neuron.emit`.
    profile : Profile, optional
        The machine's description and weights, as ``python -m fuse_epilogue calibrate``
        measures them. The one that comes with this package for the processor of the target if
        None, or else the plain description.
    limit : int
        Points up to which a space is searched in full.
    finite : bool
        For Trainium: whether data and weights are finite, so that its tensor engine may sum taps.
    round_shares : bool
        For Trainium: whether attention may round its shares to 16 bits where the values have as
        many, see :class:`fuse_epilogue.schedules.neuron.Attention`.
    measure : int
        Points that are compiled and timed on this machine, a quarter of a second each or so, and of
        which the fastest is the plan: see :mod:`.trials`. None if 0: then it is the one that costs
        least.
    on_trial : callable, optional
        Called with how many points were measured, and how many are to be, for a progress bar.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError
        `func` is neither a PrimFunc nor a Schedule, `target` is not one of these, `profile` is not
        a Profile, `limit` or `measure` is not an integer, `finite` or `round_shares` is neither
        True nor False, or `on_trial` is not callable.
    ValueError
        The target is of another kind, the function is of no kind that the planner knows
        (:class:`UnknownFunctionError`), TVM's primitives refuse every way to schedule it, one of
        its axes has the size 0, or no point is feasible; `profile` is given for no processor,
        `finite` or `round_shares` for no Trainium, or `measure` for another machine than the
        processor at hand; `limit` is below 1, or `measure` below 0; by the weights of `profile`, a
        point costs nothing.

    Example
    -------
    >>> from fuse_epilogue import schedules, workloads
    >>> import fuse_epilogue
    >>> func = workloads.matmul(64, 64, 64, activation="relu")
    >>> chosen = fuse_epilogue.plan(func, schedules.host(1))
    >>> chosen.fused
    True
    """
    func = prim_func("func", func)
    whole_number("limit", limit, 1, "the number of points up to which a space is searched in full")
    whole_number("measure", measure, 0, "the number of points that are timed")
    permitted = {"finite": finite, "round_shares": round_shares}
    for name, value in permitted.items():
        flag(name, value)
    if on_trial is not None and not callable(on_trial):
        raise TypeError(f"on_trial must be a function, not {type(on_trial).__name__}")
    machine, weights, resolution = described(target, profile)
    backend = backend_of(machine)
    if measure and not backend.is_timed:
        raise ValueError(f"measure is for the processor at hand: leave it out for {machine}")
    check_permitted(machine, **permitted)
    request = Request(func, machine, **permitted)
    for kind in backend.kinds:
        problem = kind.find(request)
        if problem is not None:
            break
    else:
        known = ", ".join(kind.name for kind in backend.kinds)
        raise UnknownFunctionError(
            f"the planner does not know this function; it knows {known}, each with "
            f"fixed sizes, loops that start at 0 and nothing scheduled: {backend.otherwise}"
        )
    found = (
        trials(problem, weights, Target(target), measure, limit, on_trial)
        if measure
        else search(problem, weights, limit)
    )
    _check_costs(found, weights)
    chosen = Plan(
        kind.name,
        problem.sizes,
        problem.dtype,
        machine,
        weights,
        found,
        resolution=resolution,
        identity=identity_of(func),
        known=problem,
        **permitted,
    )
    logger.info("planned %s", chosen)
    return chosen


def _check_costs(found: Found, weights: Weights) -> None:
    """Refuse weights by which a point costs nothing."""
    least = min(each.cost for each in found.ranked)
    if least <= 0:
        raise ValueError(
            f"with {weights} a point costs {least:g} s, but every kernel takes some time: "
            "calibrate again, or plan without this profile"
        )
