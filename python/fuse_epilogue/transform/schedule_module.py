"""The pass that schedules every function of a module."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.ir import GlobalVar
from tvm.target import Target

from .._arguments import flag, seconds
from .._printed import Printed
from ..kernels.cpu.empty_axes import for_empty_axes
from ..kernels.cpu.for_llvm import for_llvm
from ..kernels.scheduled import Packing, Scheduled, Way
from ..planner.search.trials import check_here
from ..targets import as_target
from ..tir.build import in_root
from ..tir.walk import handle
from .chosen import Outcome, Plans, by_prediction, groups, keep, kept, without_name
from .constants import with_packed_constants
from .functions import ModulePass, read_report, with_functions
from .kinds import DEFAULT, VIEW
from .timed import Choice, by_the_clock

__all__ = ["DEFAULT", "MODULE_ATTR", "VIEW", "FunctionSchedule", "ScheduleModule", "schedules_of"]

#: Kinds of targets that functions are scheduled for.
KINDS_OF_TARGETS = ("llvm", "cuda")
#: Attribute of a module that holds the report, as JSON.
MODULE_ATTR = "fuse_epilogue.schedules"


@dataclass(frozen=True, repr=False)
class FunctionSchedule(Printed):
    """The outcome for one function.

    Attributes
    ----------
    name : str
        Name of the function in the module.
    kind : str
        Kind of kernel, such as "contraction"; :data:`DEFAULT` if the function is as it was.
    fusion : str
        What became of the epilogue: "none", "tail" or "absorbed".
    predicted_s : float
        Seconds by the cost model, or by the clock if `trials` is not 0; 0 if nothing predicts it.
    packed : tuple[int, ...]
        Indices of the parameters that are packed when the module is compiled.
    why : str
        Reason why the function is as it was, or is computed directly where Winograd's algorithms
        are allowed; empty otherwise.
    trials : int
        Number of ways that were timed to choose this one; 0 if it was chosen by prediction.
    ways : tuple[Way, ...]
        The chosen way, and after it those that were considered instead, the fastest first.
    """

    name: str
    kind: str = DEFAULT
    fusion: str = "none"
    predicted_s: float = 0.0
    packed: tuple[int, ...] = field(default_factory=tuple)
    why: str = ""
    trials: int = 0
    ways: tuple[Way, ...] = ()

    def __str__(self) -> str:
        """Return the kind of kernel, its time, and why it is as it is, in one line."""
        if self.kind == DEFAULT:
            return f"{self.name}: as it was" + (f": {self.why}" if self.why else "")
        did = [f"{self.name}: {self.kind}", f"epilogue: {self.fusion}"]
        if self.predicted_s:
            by = f"best of {self.trials} timed" if self.trials else "predicted"
            did.append(f"{self.predicted_s * 1e6:.1f} us {by}")
        if self.packed:
            did.append(f"parameters packed: {', '.join(map(str, self.packed))}")
        return ", ".join(did) + (f" ({self.why})" if self.why else "")


def schedules_of(mod: ir.IRModule) -> tuple[FunctionSchedule, ...] | None:
    """Return what :class:`ScheduleModule` did to a module, None if it has not run.

    Parameters
    ----------
    mod : tvm.ir.IRModule

    Returns
    -------
    tuple[FunctionSchedule, ...] or None
        One for each PrimFunc, in the order of the module.

    Raises
    ------
    ValueError
        The module's attribute is not what the pass writes.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue.transform import schedules_of
    >>> schedules_of(tvm.IRModule()) is None
    True
    """
    return read_report(mod, MODULE_ATTR, _function_from)


def _function_from(saved: dict[str, Any]) -> FunctionSchedule:
    ways = tuple(Way(**way) for way in saved["ways"])
    return FunctionSchedule(**{**saved, "packed": tuple(saved["packed"]), "ways": ways})


@tvm.transform.module_pass(opt_level=0, name="ScheduleModule")
class ScheduleModule(ModulePass):
    """Schedule every function of a module for a processor.

    It comes after ``FuseTIR`` and, if that is used at all, :class:`FuseReductionEpilogue`. Each
    PrimFunc of constant sizes is replaced by a kernel that computes the same; its constant
    arguments are packed for it once, here. Equal functions are planned once. A function that no
    kind of kernel knows keeps the loops that it has, and :func:`schedules_of` says why.

    Parameters
    ----------
    target : tvm.target.Target or dict, optional
        Target of kind "llvm" or "cuda"; this machine's processor if None. For a GPU, functions that
        the planner does not know are scheduled by the rules of TVM's dlight.
    threads : int, optional
        Number of threads of a processor that parallel loops are made for; the target's "num-cores"
        if None.
    on_progress : callable, optional
        Called with how many steps are done, and how many there are: one for each function, and
        with `measure` one more.
    measure : float, optional
        Seconds to time ways to compute the functions on this machine, TVM's own loops among them:
        those first that are predicted to take the largest share of the time. None is timed if None.
    winograd : bool
        Whether convolutions of float32 with constant filters of 3 x 3 and stride 1 may be computed
        by Winograd's algorithms where these are predicted to be faster. Results are rounded
        otherwise, and an infinity or a NaN in an image spreads over the tiles of results that read
        it.
    plans : Plans, optional
        Where what is chosen is kept and found again, such as a
        :class:`fuse_epilogue.models.Database`.

    Raises
    ------
    TypeError, ValueError
        The target is of another kind, `threads` is below 1, `measure` is not a number above 0,
        there is something to measure for another machine than this, or `winograd` is not a bool or
        is for a GPU.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> from fuse_epilogue.transform import ScheduleModule, schedules_of
    >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 64, activation="relu")})
    >>> [each.name for each in schedules_of(ScheduleModule()(mod))]
    ['main']
    """

    def __init__(
        self,
        target: Target | dict[str, Any] | None = None,
        *,
        threads: int | None = None,
        on_progress: Callable[[int, int], Any] | None = None,
        measure: float | None = None,
        winograd: bool = False,
        plans: Plans | None = None,
    ) -> None:
        """Check the options."""
        self.target = as_target(target)
        if self.target.kind.name not in KINDS_OF_TARGETS:
            raise ValueError(
                f"ScheduleModule schedules for processors, kind 'llvm', and GPUs, kind 'cuda', not "
                f"for '{self.target.kind.name}'"
            )
        cores = int(self.target.attrs.get("num-cores", 1))
        self.threads = cores if threads is None else threads
        if isinstance(self.threads, bool) or not isinstance(self.threads, int) or self.threads < 1:
            raise ValueError(f"threads must be an integer from 1, not {threads!r}")
        self.on_progress = on_progress
        self.measure = None if measure is None else seconds("measure", measure)
        if self.measure is not None:
            check_here(self.target)
        flag("winograd", winograd)
        if winograd and self.target.kind.name != "llvm":
            raise ValueError("winograd is for processors: leave it out for a GPU")
        self.winograd = winograd
        self.plans = plans

    def transform_module(
        self, mod: ir.IRModule, _context: tvm.transform.PassContext
    ) -> ir.IRModule:
        """Return the module with its functions scheduled.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            Stays as it is.
        """
        todo = [var for var, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)]
        choices = self._choices(mod, todo)
        outcomes = {handle(var): each.outcome for each in choices for var in each.group.names}
        functions: dict[GlobalVar, Any] = {}
        packings: dict[int, Mapping[int, Packing]] = {}
        reports = []
        for var in todo:
            outcome, func = outcomes[handle(var)], mod[var]
            reports.append(_report(str(var.name_hint), outcome))
            if isinstance(outcome, Scheduled):
                packings[handle(var)] = outcome.packing
                functions[var] = self._finished(_named_as(func, outcome.func))
            else:
                functions[var] = self._finished(func)
        renewed = with_functions(mod, functions)
        if any(packings.values()):
            renewed = with_packed_constants(renewed, packings)
        return renewed.with_attr(MODULE_ATTR, json.dumps([asdict(each) for each in reports]))

    def _finished(self, func: Any) -> Any:
        """Return a function as it is compiled."""
        if self.target.kind.name == "cuda":
            return func.with_attr("tirx.is_scheduled", True)
        return for_llvm(for_empty_axes(func))

    def _choices(self, mod: ir.IRModule, todo: list[GlobalVar]) -> list[Choice]:
        """Return what is chosen for each function."""
        timed = self.measure is not None
        steps = len(todo) * (2 if timed else 1)
        choices, is_kept, done = [], [], 0
        for group in groups(mod, todo, self.target, self.threads, self.winograd):
            found = kept(self.plans, group.work, timed)
            is_kept.append(found is not None)
            choices.append(Choice(group, by_prediction(group.work) if found is None else found))
            for _ in group.names:
                done += 1
                self._progress(done, steps)
        fresh = [choice for choice, known in zip(choices, is_kept, strict=True) if not known]
        if self.measure is not None:
            by_the_clock(
                fresh,
                self.measure,
                lambda share: self._progress(done + int(share * (done - 1)), steps),
            )
            self._progress(steps, steps)
        for choice in fresh:
            keep(self.plans, choice.group.work, choice.outcome, choice.was_timed)
        return choices

    def _progress(self, done: int, steps: int) -> None:
        if self.on_progress is not None:
            self.on_progress(done, steps)


def _report(name: str, outcome: Outcome) -> FunctionSchedule:
    if isinstance(outcome, str):
        return FunctionSchedule(name, why=outcome)
    return FunctionSchedule(
        name,
        outcome.kind,
        outcome.fusion,
        outcome.predicted_s,
        tuple(sorted(outcome.packing)),
        trials=outcome.trials,
        why=outcome.why,
        ways=outcome.ways,
    )


def _named_as(func: Any, scheduled: Any) -> Any:
    """Return a scheduled function with the name of the function it replaces."""
    name = (func.attrs or {}).get("global_symbol")
    if not isinstance(scheduled.body, s_tir.SBlockRealize):
        # Relax's passes after this one look for a root block in every function.
        scheduled = scheduled.with_body(in_root(scheduled.body))
    scheduled = without_name(scheduled)
    return scheduled if name is None else scheduled.with_attr("global_symbol", name)
