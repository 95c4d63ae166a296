"""Builds, measures and keeps candidates, with TVM's builder, runner and database."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import ScheduleError
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .._interrupts import held
from .._printed import Printed
from .._rpc import Present, end
from .records import commit, commit_workload
from .strategy import fusions, mean

#: How often a run looks whether a measurement is ready, in seconds.
_POLL = 0.02

#: In front of what is wrong, in the message of a ScheduleError.
_SAID = "Error message:"


@dataclass(frozen=True, repr=False)
class Trial(Printed):
    """One candidate that was built and measured, or that failed.

    Attributes
    ----------
    task : str
        The name of the function.
    number : int
        Which of its trials, from 1 on, those of earlier runs included.
    of : int
        How many there are to be.
    seconds : float or None
        The mean time of a call; None if it failed.
    error : str
        Why it failed; empty if it did not.
    fused : bool
        Whether a reduction of it is fused with an epilogue.
    """

    task: str
    number: int
    of: int
    seconds: float | None
    error: str
    fused: bool = False

    def __str__(self) -> str:
        """Return the number of the trial, and its time or why it failed."""
        found = f"failed: {self.error}" if self.seconds is None else f"{self.seconds * 1e6:.2f} us"
        fused = ", fused" if self.fused else ""
        return f"{self.task} {self.number}/{self.of}: {found.strip()}{fused}"


@dataclass(frozen=True, repr=False)
class LeftOut(Printed):
    """A function that MetaSchedule cannot take; the others of its module are tuned.

    Attributes
    ----------
    task : str
        The name of the function.
    reason : str
        Reason why MetaSchedule cannot tune it.
    """

    task: str
    reason: str

    def __str__(self) -> str:
        """Return the function and the reason."""
        return f"{self.task}: left out: {self.reason}"


class Unfit(RuntimeError):
    """MetaSchedule cannot take a function; the message says why."""


@dataclass
class Bench:
    """Builds, measures and keeps candidates.

    - `database`, `target`, `builder`, `runner`: TVM's.
    - `watch`: called while measurements run.
    - `wait`: how long a tracker may be without any server, in seconds.
    - `on_trial`: called with each :class:`Trial`.
    """

    database: ms.database.JSONDatabase
    target: Target
    builder: ms.Builder
    runner: ms.Runner
    watch: Callable[[], Any]
    wait: float
    on_trial: Callable[[Trial], Any]

    def search(
        self, context: ms.TuneContext, trials: int, done: int, batch: int, cost_model: ms.CostModel
    ) -> None:
        """Measure what the search proposes, until there are as many trials as asked for.

        - Raises Unfit: MetaSchedule cannot take the function.
        - Raises ServersGone: there is no server left to measure on.
        - Raises OSError: the database cannot be written.
        """
        try:
            with held():
                spaces = context.generate_design_space()
        except Exception as error:  # whatever a rule raises of this function
            raise Unfit(_why(error)) from error
        workload = commit_workload(self.database, context.mod)
        with held():
            context.pre_tuning(trials - done, batch, spaces, self.database, cost_model)
        while (candidates := _proposed(context)) is not None:
            results: list[Any] = [None] * len(candidates)
            for index, result in self.measure(candidates):
                results[index] = result
                done += 1
                seconds = mean(result.run_secs or ())
                if seconds is not None:
                    self.keep(candidates[index], workload, [float(s) for s in result.run_secs])
                failed = "" if result.error_msg is None else str(result.error_msg)
                fused = fusions(candidates[index].sch.trace) > 0
                self.on_trial(Trial(context.task_name, done, trials, seconds, failed, fused))
            with held():
                context.notify_runner_results(candidates, results)
                cost_model.update(context, candidates, results)
        with held():
            context.post_tuning()
        if done == 0:
            raise Unfit(
                "MetaSchedule proposes no schedule for it: it tunes functions with blocks and "
                "fixed shapes"
            )

    def keep(
        self, candidate: ms.MeasureCandidate, workload: ms.database.Workload, times: list[float]
    ) -> None:
        """Append one measurement to the database."""
        commit(
            self.database,
            ms.database.TuningRecord(
                candidate.sch.trace, workload, times, self.target, candidate.args_info
            ),
        )

    def measure(
        self, candidates: Sequence[ms.MeasureCandidate]
    ) -> Iterator[tuple[int, ms.runner.RunnerResult]]:
        """Yield the result of each candidate as soon as it is there, by its position."""
        built = self.builder.build(
            [ms.builder.BuilderInput(c.sch.mod, self.target) for c in candidates]
        )
        device = tvm.runtime.device(self.target.get_target_device_type(), 0).type
        inputs: dict[int, Any] = {}
        try:
            for index, result in enumerate(built):
                if result.error_msg is not None:
                    yield index, ms.runner.RunnerResult(None, str(result.error_msg))
                else:
                    inputs[index] = ms.runner.RunnerInput(
                        result.artifact_path, device, candidates[index].args_info
                    )
            # TVM's local runner comes back when all it was given is done: it gets one at a time.
            alone = isinstance(self.runner, ms.runner.LocalRunner)
            for group in [[i] for i in inputs] if alone else [list(inputs)]:
                yield from self._run({i: inputs[i] for i in group})
        finally:
            for result in built:
                if result.artifact_path is not None:
                    shutil.rmtree(Path(str(result.artifact_path)).parent, ignore_errors=True)

    def _run(self, inputs: dict[int, Any]) -> Iterator[tuple[int, ms.runner.RunnerResult]]:
        far = isinstance(self.runner, ms.runner.RPCRunner)
        pending = dict(zip(inputs, self.runner.run(list(inputs.values())), strict=True))
        present = Present(self.runner.rpc_config, self.wait) if far else None
        try:
            while pending:
                ready = [index for index, future in pending.items() if future.done()]
                for index in ready:
                    yield index, pending.pop(index).result()
                if not ready:
                    self.watch()
                    if present:
                        present.check()
                    time.sleep(_POLL)
        finally:
            if pending and far:
                # Its processes may wait for a server, and this one would wait for them at its end.
                end(self.runner)


def _proposed(context: ms.TuneContext) -> Sequence[ms.MeasureCandidate] | None:
    """Return what a search proposes next; None at its end."""
    try:
        with held():
            found: Sequence[ms.MeasureCandidate] | None = context.generate_measure_candidates()
        return found
    except ScheduleError as error:
        raise Unfit(_why(error)) from error


def _why(error: Exception) -> str:
    """Return what TVM says of a function, without its script."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(_SAID)] or lines[-1:] or ["no message"]
    advice = "; tune before fusing and scheduling" if isinstance(error, ScheduleError) else ""
    return f"MetaSchedule cannot schedule it ({said[-1].removeprefix(_SAID).strip()}){advice}"
