"""Chooses a kernel for each function of a module: by prediction, or as a database has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tvm_ffi
from tvm import ir
from tvm.ir import GlobalVar
from tvm.target import Target

from .._arguments import prim_func
from .._interrupts import raise_interrupt
from ..kernels.scheduled import Scheduled
from ..kernels.storage import from_data, to_data
from ..recognize.independent_axes import has_symbolic_sizes
from ..tir.walk import handle
from .constants import call_counts, constant_parameters
from .kinds import Work, kinds_for

#: A function with a schedule, or why it keeps TVM's own loops.
Outcome = Scheduled | str


class Plans(Protocol):
    """A store of outcomes; :class:`fuse_epilogue.models.Database` is one."""

    def get(self, func: Any, target: Any, **options: Any) -> Any:
        """Return what was put for a function, None if nothing was."""

    def put(self, func: Any, target: Any, value: Any, **options: Any) -> None:
        """Keep a value for a function."""


@dataclass
class Group:
    """Functions of a module that are equal.

    - `names`: their variables.
    - `calls`: calls of them in the Relax functions of the module.
    """

    work: Work
    names: list[GlobalVar]
    calls: int = 0


def groups(
    mod: ir.IRModule,
    names: Sequence[GlobalVar],
    target: Target,
    threads: int,
    winograd: bool = False,
) -> list[Group]:
    """Return functions of a module by what they compute, of which arguments are constants."""
    constants, calls = constant_parameters(mod), call_counts(mod)
    found: defaultdict[Any, list[Group]] = defaultdict(list)
    for var in names:
        prim_func("func", mod[var])
        fixed = constants.get(handle(var), frozenset())
        func = without_name(mod[var])
        same = found[tvm_ffi.structural_hash(func), fixed]
        group = next((g for g in same if tvm_ffi.structural_equal(_bare(g), func)), None)
        if group is None:
            group = Group(Work(mod[var], target, threads, fixed, winograd), [])
            same.append(group)
        group.names.append(var)
        group.calls += calls[handle(var)]
    return [group for same in found.values() for group in same]


def _bare(group: Group) -> Any:
    return without_name(group.work.func)


def without_name(func: Any) -> Any:
    """Return a function without the attribute that names it."""
    return func.without_attr("global_symbol") if "global_symbol" in (func.attrs or {}) else func


def by_prediction(work: Work) -> Outcome:
    """Return a function scheduled by the first kind that knows it, or why none does."""
    reason = ""
    for kind in kinds_for(work.target):
        try:
            found = next(kind(work), None)
        except Exception as error:  # noqa: BLE001 - one function must not stop a module
            raise_interrupt(error)
            message = (str(error).splitlines() or [""])[-1]
            reason = reason or f"{type(error).__name__}: {message}"
            continue
        if found is not None:
            return found
    return reason or _why_unknown(work)


def _why_unknown(work: Work) -> str:
    if work.program is not None:
        return "no kind of kernel knows it"
    if has_symbolic_sizes(work.func):
        return "a size that is not constant is not that of independent rows"
    return "its loops are not blocks that compute every element of a buffer once"


def kept(plans: Plans | None, work: Work, timed: bool) -> Outcome | None:
    """Return what a database has for a function, None if it has nothing.

    - `timed`: whether only what was chosen by the clock counts; otherwise that comes first.
    - Raises ValueError: the entry is not what :func:`keep` writes.
    """
    if plans is None:
        return None
    for by_clock in (True,) if timed else (True, False):
        value = plans.get(work.func, work.target, **_options(work, by_clock))
        if value is not None:
            try:
                return str(value) if isinstance(value, str) else from_data(value)
            except ValueError as error:
                raise ValueError(f"an entry of {plans} is damaged: {error}; remove it") from error
    return None


def keep(plans: Plans | None, work: Work, outcome: Outcome, timed: bool) -> None:
    """Keep what became of a function."""
    value = outcome if isinstance(outcome, str) else to_data(outcome)
    if plans is not None and value is not None:
        plans.put(work.func, work.target, value, **_options(work, timed))


def _options(work: Work, timed: bool) -> dict[str, Any]:
    return {
        "threads": work.threads,
        "constants": sorted(work.constants),
        "timed": timed,
        "winograd": work.winograd,
    }
