"""Tuning that loses no measurement: each is in the database as soon as it is made.

TVM's task scheduler writes a batch when all of it is measured; a run that is killed before loses
what it has measured of it. Here TVM's parts (the space, the evolutionary search, the cost model,
the builder and the runner) are the same, and only the loop around them is ours.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .build import local_builder
from .records import measured, open_database
from .rpc import Cluster
from .rule import space as default_space
from .strategy import FuseBest, mean

#: How often a run looks whether a measurement is ready, in seconds.
_POLL = 0.02

#: The largest seed that MetaSchedule takes.
_SEEDS = 2**31 - 2


@dataclass(frozen=True)
class Trial:
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
    """

    task: str
    number: int
    of: int
    seconds: float | None
    error: str


def tune(
    mod: IRModule | tirx.PrimFunc,
    target: Target | str | dict[str, Any],
    folder: str | Path,
    *,
    trials: int,
    batch: int = 16,
    space: Any = None,  # noqa: ANN401 - what TVM takes
    strategy: Any = None,  # noqa: ANN401 - what TVM takes
    cost_model: Any = "xgb",  # noqa: ANN401 - what TVM takes
    builder: ms.Builder | None = None,
    runner: ms.Runner | None = None,
    servers: int = 0,
    seed: int = 0,
    repeatable: bool = False,
    watch: Callable[[], Any] | None = None,
    on_trial: Callable[[Trial], Any] | None = None,
) -> ms.database.JSONDatabase:
    """Search the best schedule of every function, and keep each measurement as soon as it is made.

    A run that was stopped, by whatever, goes on when it is called again with the same folder: what
    is in the database counts, and the search begins with the best of it. A function that has its
    trials is left alone.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.tirx.PrimFunc
        Functions that are not scheduled; what is no PrimFunc is passed over.
    target : tvm.target.Target, str or dict
        With "num-cores".
    folder : str or Path
        Where the database is, see :func:`fuse_epilogue.tune.open_database`.
    trials : int
        Measurements per function, those that are in the database included. A candidate that fails
        counts for this run only.
    batch : int
        How many candidates are proposed at a time; the cost model learns after each batch.
    space : SpaceGenerator, optional
        What to search; :func:`fuse_epilogue.tune.space` of the target if there is none.
    strategy : SearchStrategy or str, optional
        How; :class:`fuse_epilogue.tune.FuseBest` if there is none.
    cost_model : CostModel or str
        What chooses among candidates: ``"xgb"`` needs the package xgboost, ``"random"`` none.
    builder : Builder, optional
        :func:`fuse_epilogue.tune.local_builder` if there is none.
    runner : Runner, optional
        TVM's ``LocalRunner`` if there is none and no servers either.
    servers : int
        If not 0: start a tracker and so many servers on this machine, and measure there.
    seed : int
        Of what is drawn.
    repeatable : bool
        Propose on one core: then the same seed and database propose the same candidates, as long as
        the cost model does not differ. The threads of several take them in turns that differ.
    watch : callable, optional
        Called while measurements run; :meth:`fuse_epilogue.tune.Cluster.watch`, for example.
    on_trial : callable, optional
        Called with each :class:`Trial`, for a progress bar.

    Returns
    -------
    tvm.s_tir.meta_schedule.database.JSONDatabase
        Use it as any of TVM's: ``compile_tir(database, mod, target)``, or
        ``relax.transform.MetaScheduleApplyDatabase()`` within ``with database, target:``.

    Raises
    ------
    ImportError
        A package that MetaSchedule needs is missing.
    ValueError
        There is no function to tune, a number is less than 1, or both `runner` and `servers` are
        given.

    Example
    -------
    >>> from fuse_epilogue import tune, workloads
    >>> func = workloads.matmul(16, 16, 16)
    >>> target = {"kind": "llvm", "num-cores": 1}
    >>> database = tune.tune(func, target, "tuned", trials=1, cost_model="random")
    >>> len(database)
    1

    ``tvm.s_tir.meta_schedule.tir_integration.compile_tir(database, func, target)`` returns the best
    schedule.
    """
    for name, number in (("trials", trials), ("batch", batch)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}")
    if servers and runner is not None:
        raise ValueError("pass either a runner or a number of servers to start, not both")
    target = target if isinstance(target, Target) else Target(target)
    tasks = _tasks(mod)
    _check_packages()
    if servers:
        with Cluster(servers) as cluster:
            return tune(
                mod,
                target,
                folder,
                trials=trials,
                batch=batch,
                space=space,
                strategy=strategy,
                cost_model=cost_model,
                builder=builder,
                runner=cluster.runner(),
                seed=seed,
                repeatable=repeatable,
                watch=cluster.watch,
                on_trial=on_trial,
            )
    database = open_database(folder)
    for record in database.get_all_tuning_records():
        if record.target is not None and not tvm_ffi.structural_equal(record.target, target):
            raise ValueError(
                f"'{folder}' has measurements for {record.target}, not for {target}: take another "
                "folder, times on the one say nothing of the other"
            )
    cores = int(target.attrs.get("num-cores", 1))
    bench = _Bench(
        database,
        target,
        builder or local_builder(cores),
        runner or ms.runner.LocalRunner(),
        watch or (lambda: None),
        on_trial or (lambda trial: None),
    )
    if cost_model == "random":
        cost_model = ms.cost_model.RandomModel(seed=seed)
    elif not isinstance(cost_model, ms.CostModel):
        cost_model = ms.CostModel.create(cost_model, num_tuning_cores=cores)
    for name, task in tasks:
        done = measured(database, task)
        if done >= trials:
            continue
        context = ms.TuneContext(
            task,
            target=target,
            space_generator=(space or default_space(target)).clone(),
            search_strategy=_new(strategy),
            task_name=name,
            # Other candidates than the last run had: they are measured.
            rand_state=1 + (seed * 1_000_003 + done) % _SEEDS,
            num_threads=1 if repeatable else cores,
        )
        bench.search(context, trials, done, batch, cost_model)
    return database


@dataclass
class _Bench:
    """Builds, measures and keeps candidates."""

    database: ms.database.JSONDatabase
    target: Target
    builder: ms.Builder
    runner: ms.Runner
    watch: Callable[[], Any]
    on_trial: Callable[[Trial], Any]

    def search(
        self, context: ms.TuneContext, trials: int, done: int, batch: int, cost_model: ms.CostModel
    ) -> None:
        """Measure what the search proposes, until there are as many trials as asked for."""
        workload = self.database.commit_workload(context.mod)
        context.pre_tuning(
            trials - done,
            batch,
            context.generate_design_space(),
            self.database,
            cost_model,
        )
        while (candidates := context.generate_measure_candidates()) is not None:
            results: list[Any] = [None] * len(candidates)
            for index, result in self.measure(candidates):
                results[index] = result
                done += 1
                seconds = mean(result.run_secs or ())
                if seconds is not None:
                    self.keep(candidates[index], workload, [float(s) for s in result.run_secs])
                error = "" if result.error_msg is None else str(result.error_msg)
                self.on_trial(Trial(context.task_name, done, trials, seconds, error))
            context.notify_runner_results(candidates, results)
            cost_model.update(context, candidates, results)
        context.post_tuning()

    def keep(
        self, candidate: ms.MeasureCandidate, workload: ms.database.Workload, times: list[float]
    ) -> None:
        """Append one measurement to the database."""
        self.database.commit_tuning_record(
            ms.database.TuningRecord(
                candidate.sch.trace, workload, times, self.target, candidate.args_info
            )
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
                        result.artifact_path,
                        device,
                        candidates[index].args_info,
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
        pending = dict(zip(inputs, self.runner.run(list(inputs.values())), strict=True))
        while pending:
            ready = [index for index, future in pending.items() if future.done()]
            for index in ready:
                yield index, pending.pop(index).result()
            if not ready:
                self.watch()
                time.sleep(_POLL)


def _new(strategy: Any) -> ms.SearchStrategy:  # noqa: ANN401 - what TVM takes
    """Return a strategy of one search."""
    if strategy is None:
        return FuseBest()
    if isinstance(strategy, ms.SearchStrategy):
        return strategy.clone()
    return ms.SearchStrategy.create(strategy)


def _tasks(mod: IRModule | tirx.PrimFunc) -> list[tuple[str, IRModule]]:
    """Return the functions to tune, each alone and as "main", as TVM keeps them."""
    if isinstance(mod, tirx.PrimFunc):
        mod = IRModule({"main": mod})
    tasks = []
    for variable, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            alone = function.with_attr("global_symbol", "main")
            tasks.append((variable.name_hint, IRModule({"main": alone})))
    if not tasks:
        raise ValueError("there is no PrimFunc in the module: legalise its operators first")
    return sorted(tasks, key=lambda task: task[0])


def _check_packages() -> None:
    """TVM imports them in the middle of its work."""
    for package in ("cloudpickle", "psutil"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(
                f"MetaSchedule needs the package {package}: pip install 'fuse_epilogue[tune]'"
            )
