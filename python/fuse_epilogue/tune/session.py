"""Tuning that loses no measurement: each is in the database as soon as it is made.

TVM's task scheduler writes a batch when all of it is measured; a run that is killed before loses
what it has measured of it. Here TVM's parts (the space, the evolutionary search, the cost model,
the builder and the runner) are the same, and only the loop around them is ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..targets import as_target
from .bench import Bench, LeftOut, Trial, Unfit
from .build import local_builder
from .checks import check, check_numbers
from .lock import locked
from .records import measured, read_database
from .rpc import Cluster
from .rule import space as default_space
from .strategy import FuseBest

#: The largest seed that MetaSchedule takes.
_SEEDS = 2**31 - 2


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
    wait: float = 60,
    on_trial: Callable[[Trial], Any] | None = None,
    on_left_out: Callable[[LeftOut], Any] | None = None,
) -> ms.database.JSONDatabase:
    """Search the best schedule of every function, and keep each measurement as soon as it is made.

    A run that was interrupted resumes when it is called again with the same folder: measurements in
    the database count as trials, and the search begins with the best of them. A function that has
    all of its trials is skipped, and one that MetaSchedule cannot take is left out.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.tirx.PrimFunc
        Functions that are not scheduled; other functions are skipped.
    target : tvm.target.Target, str or dict
        With "num-cores"; of a GPU with "max_threads_per_block" and "max_shared_memory_per_block".
    folder : str or Path
        Where the database is, see :func:`fuse_epilogue.tune.open_database`. One process at a time
        tunes into it.
    trials : int
        Measurements per function, those that are in the database included. A candidate that fails
        counts for this run only.
    batch : int
        How many candidates are proposed at a time; the cost model learns after each batch.
    space : SpaceGenerator, optional
        What to search; :func:`fuse_epilogue.tune.space` of the target if there is none.
    strategy : SearchStrategy or str, optional
        How to search; :class:`fuse_epilogue.tune.FuseBest` if there is none.
    cost_model : CostModel or str
        Model that chooses among candidates: ``"xgb"`` needs the package xgboost, and ``"random"``
        needs nothing.
    builder : Builder, optional
        :func:`fuse_epilogue.tune.local_builder` if there is none.
    runner : Runner, optional
        TVM's ``LocalRunner`` if there is none and no servers either.
    servers : int
        If not 0: start a tracker and that number of servers on this machine, and measure there.
    seed : int
        Seed of the random choices; from 0 to 2**32 - 1.
    repeatable : bool
        Propose on one core: then the same seed and database propose the same candidates, as long as
        the cost model does not differ. The threads of several take them in turns that differ.
    watch : callable, optional
        Called while measurements run; :meth:`fuse_epilogue.tune.Cluster.watch`, for example.
    wait : float
        How long to wait for a server where there is none, in seconds.
    on_trial : callable, optional
        Called with each :class:`Trial`, for a progress bar.
    on_left_out : callable, optional
        Called with each :class:`LeftOut`. Without it they are an error, when all others are tuned.

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
        There is no function to tune, a number is too small or too large, both `runner` and
        `servers` are given, the target does not say what MetaSchedule needs, this machine has no
        such device, or another process tunes into the folder. Or functions were left out.
    OSError
        The database cannot be written, its disk is full for example. What was measured before is
        in it: with room, the same call goes on.
    ServersGone
        There has been no server for `wait` seconds. The database has what was measured: with a
        server, the same call goes on.

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
    check_numbers(trials=trials, batch=batch, servers=servers, seed=seed)
    if servers and runner is not None:
        raise ValueError("pass either a runner or a number of servers to start, not both")
    target = as_target(target)
    tasks = _tasks(mod)
    check(target, space, runner, cost_model)
    # Candidates are proposed and compiled here, whatever machine the target is.
    cores = min(int(target.attrs.get("num-cores", 1)), os.cpu_count() or 1)
    left_out: list[LeftOut] = []
    with locked(Path(folder)):
        database = read_database(Path(folder))
        _check_same(database, target, folder)
        model = _model(cost_model, seed, cores)
        with Cluster(servers) if servers else nullcontext() as cluster:
            bench = Bench(
                database,
                target,
                builder or local_builder(cores),
                cluster.runner() if cluster else runner or ms.runner.LocalRunner(),
                _both(cluster.watch if cluster else None, watch),
                wait,
                on_trial or (lambda trial: None),
            )
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
                try:
                    bench.search(context, trials, done, min(batch, trials), model)
                except Unfit as error:
                    left_out.append(LeftOut(name, str(error)))
                    if on_left_out is not None:
                        on_left_out(left_out[-1])
    if left_out and on_left_out is None:
        raise _all_left_out(left_out, len(tasks), folder)
    return database


def _model(cost_model: Any, seed: int, cores: int) -> ms.CostModel:  # noqa: ANN401 - what TVM takes
    """Return the model that chooses among candidates."""
    if cost_model == "random":
        return ms.cost_model.RandomModel(seed=seed)
    if isinstance(cost_model, ms.CostModel):
        return cost_model
    return ms.CostModel.create(cost_model, num_tuning_cores=cores)


def _all_left_out(left_out: list[LeftOut], tasks: int, folder: str | Path) -> ValueError:
    """Return the error that names the functions which were left out of n tasks."""
    reasons = "\n".join(f"  {each.task}: {each.reason}" for each in left_out)
    return ValueError(
        f"left out, {len(left_out)} of {tasks} functions; what was measured of others is "
        f"in '{folder}'; pass on_left_out to go on without them:\n{reasons}"
    )


def _check_same(database: ms.database.JSONDatabase, target: Target, folder: str | Path) -> None:
    """Return if all that a database has was measured for one target."""
    for record in database.get_all_tuning_records():
        if record.target is not None and not tvm_ffi.structural_equal(record.target, target):
            raise ValueError(
                f"'{folder}' has measurements for {record.target}, not for {target}: use another "
                "folder, since times on one say nothing about the other"
            )


def _both(*calls: Callable[[], Any] | None) -> Callable[[], None]:
    """Return what makes several calls, those that are there."""
    there = [each for each in calls if each is not None]

    def watch() -> None:
        for each in there:
            each()

    return watch


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
