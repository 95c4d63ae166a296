"""A search strategy of MetaSchedule that measures the best schedules fused as well.

A rule that forks the search space halves what is drawn of either part: with few trials, the best
that is found may be worse than without the rule, by chance alone. Here TVM's search is left as it
is: it draws what it draws without the rule, for the same seed the same. A share of the trials goes
to the best of what was measured, with all decisions as they are, but fused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Instruction, Trace

#: One in this many trials is for a schedule that was measured unfused before.
SHARE = 16

_FUSION = "FuseReductionEpilogue"
_END = "EnterPostproc"


@derived_object
class FuseBest(ms.search_strategy.PySearchStrategy):
    """TVM's search among unfused schedules, and the best of them measured fused, too.

    What is fused and among the best takes part in the search from then on, by way of the database:
    TVM's evolution begins with the best that was measured, however it came about.

    Parameters
    ----------
    inner : SearchStrategy, optional
        Strategy that draws unfused schedules; TVM's evolutionary search if None.

    Example
    -------
    >>> from tvm.s_tir import meta_schedule as ms
    >>> from fuse_epilogue import tune
    >>> strategy = tune.FuseBest(ms.search_strategy.EvolutionarySearch(population_size=128))

    For ``tune.tune(..., strategy=strategy)`` and TVM's ``tune_tir(..., strategy=strategy)``.
    """

    def __init__(self, inner: ms.SearchStrategy | None = None) -> None:
        self.inner = inner or ms.search_strategy.EvolutionarySearch()
        self.run: _Run | None = None

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        # Not the context itself, which owns this strategy.
        self.mod, self.generator = context.mod, context.space_generator
        self.inner._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[s_tir.Schedule],
        database: ms.Database | None = None,
        cost_model: ms.CostModel | None = None,
    ) -> None:
        """Begin a search; as of TVM's strategies."""
        spaces = list(design_spaces)
        fused = [space for space in spaces if fusions(space.trace)]
        plain = [space for space in spaces if not fusions(space.trace)]
        # A function that was fused before has no other schedules.
        batch = min(num_trials_per_iter, max_trials)
        self.run = _Run(max_trials, batch, max(1, batch // SHARE), fused if plain else [])
        # TVM's evolution asks for both.
        database = ms.database.MemoryDatabase() if database is None else database
        cost_model = ms.cost_model.RandomModel() if cost_model is None else cost_model
        if database.has_workload(self.mod):
            workload = database.commit_workload(self.mod)
            for record in database.get_top_k(workload, len(database)):
                self.run.add(record.trace, mean(record.run_secs or ()))
        self.inner.pre_tuning(
            max_trials, num_trials_per_iter, plain or spaces, database, cost_model
        )

    def post_tuning(self) -> None:
        """End the search."""
        self.run = None
        self.inner.post_tuning()

    def generate_measure_candidates(self) -> list[ms.MeasureCandidate] | None:
        """Return what is to be measured next; None at the end."""
        run = self.run
        assert run is not None
        if run.left <= 0:
            return None
        again = [self._candidate(trace) for trace in run.best_unturned()]
        found = [each for each in again if each is not None]
        kept = 0 if run.left <= run.share or not run.spaces else run.share
        room = min(run.batch, run.left - kept) - len(found)
        fresh = run.put_back
        if len(fresh) < room and not run.at_end:
            drawn = self.inner.generate_measure_candidates()
            run.at_end = drawn is None
            fresh += list(drawn or ())
        room = max(room, 0)
        found, run.put_back = found + fresh[:room], fresh[room:]
        run.left -= len(found)
        return found or None

    def notify_runner_results(
        self,
        measure_candidates: Sequence[ms.MeasureCandidate],
        results: Sequence[ms.runner.RunnerResult],
    ) -> None:
        """Learn how long each took."""
        assert self.run is not None
        for candidate, result in zip(measure_candidates, results, strict=True):
            self.run.add(candidate.sch.trace, mean(result.run_secs or ()))
        self.inner.notify_runner_results(list(measure_candidates), list(results))

    def clone(self) -> Any:  # noqa: ANN401 - the class is TVM's by now
        """Return another strategy that does the same."""
        return FuseBest(self.inner.clone())

    def _candidate(self, trace: Trace) -> ms.MeasureCandidate | None:
        sch = s_tir.Schedule(self.mod, debug_mask="none", error_render_level="none")
        try:
            trace.apply_to_schedule(sch, remove_postproc=True)
        except s_tir.ScheduleError:
            return None
        sch.enter_postproc()
        if not all(postproc.apply(sch) for postproc in self.generator.postprocs):
            return None
        return ms.MeasureCandidate(sch, ms.arg_info.ArgInfo.from_entry_func(sch.mod))


@dataclass
class _Run:
    """The measurements of a search, and those still to make.

    - `left`: trials.
    - `batch`: how many are measured at a time.
    - `share`: how many of a batch are for what was measured unfused.
    - `spaces`: the design spaces with a fusion.
    - `put_back`: candidates that were drawn and have not been measured yet.
    """

    left: int
    batch: int
    share: int
    spaces: list[s_tir.Schedule]
    put_back: list[ms.MeasureCandidate] = field(default_factory=list)
    at_end: bool = False
    unfused: list[tuple[float, Trace]] = field(default_factory=list)
    fused: set[str] = field(default_factory=set)

    def add(self, trace: Trace, seconds: float | None) -> None:
        """Remember a schedule that was measured, or that failed."""
        if fusions(trace):
            self.fused.add(_name(trace))
        elif seconds is not None:
            self.unfused.append((seconds, trace))

    def best_unturned(self) -> Iterable[Trace]:
        """Yield the best traces, fused, which have not been proposed before."""
        left = min(self.share, self.left)
        for _, trace in sorted(self.unfused, key=lambda each: each[0]):
            if left == 0:
                return
            turned = fused_like(trace, self.spaces)
            if turned is not None and _name(turned) not in self.fused:
                self.fused.add(_name(turned))
                left -= 1
                yield turned


def fused_like(trace: Trace, spaces: Iterable[s_tir.Schedule]) -> Trace | None:
    """Return the trace of a fused design space with the decisions of another trace.

    - `trace`: without a fusion.
    - `spaces`: spaces of the same function.
    - Returns: number of the space that draws the same, writes what is reduced in the same loop, and
      fuses most; None if there is no such space.
    """
    alike = [space.trace for space in spaces if structure(space.trace) == structure(trace)]
    if not alike:
        return None
    turned = max(alike, key=fusions)
    drawn = [inst for inst in body(turned) if inst in turned.decisions]
    decisions = [trace.decisions[inst] for inst in body(trace) if inst in trace.decisions]
    for inst, decision in zip(drawn, decisions, strict=True):
        turned = turned.with_decision(inst, decision, remove_postproc=True)
    return turned


def structure(trace: Trace) -> list[tuple[str, int]]:
    """Return what a trace draws, and in which of its tiles' loops it writes, in order.

    A trace that writes a reduction's epilogue in a loop of the reduction, and one that writes a
    copy of the fused reduction there, are of the same structure.
    """
    found: list[tuple[str, int]] = []
    loops: list[Any] = []
    for inst in body(trace):
        kind = str(inst.kind.name)
        if kind == "Reorder":
            loops = list(inst.inputs)
        elif kind == "ReverseComputeAt":
            where = [place for place, loop in enumerate(loops) if loop.same_as(inst.inputs[1])]
            found.append((kind, where[0] if where else -1))
        elif kind.startswith("Sample"):
            found.append((kind, 0))
    return found


def body(trace: Trace) -> list[Instruction]:
    """Return the steps of a trace in front of what postprocessors have added."""
    steps: list[Instruction] = []
    for inst in trace.insts:
        if str(inst.kind.name) == _END:
            break
        steps.append(inst)
    return steps


def fusions(trace: Trace) -> int:
    """Return how many steps of a trace fuse."""
    return sum(str(inst.kind.name) == _FUSION for inst in trace.insts)


def mean(seconds: Iterable[Any]) -> float | None:
    """Return the mean of measured times, None without any."""
    times = [float(each) for each in seconds]
    return sum(times) / len(times) if times else None


def _name(trace: Trace) -> str:
    """Return what two traces with the same steps and decisions have in common."""
    drawn = [trace.decisions[inst] for inst in body(trace) if inst in trace.decisions]
    return f"{structure(trace)} {drawn}"
