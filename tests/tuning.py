"""What the tests of tuning share: small searches, without what takes TVM long to import."""

from __future__ import annotations

import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.support.tar import tar

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
FUSE = "sch.fuse_reduction_epilogue"

# A context of MetaSchedule imports all of TVM's tensor intrinsics; none is used in these tests.
INTRINSICS = "tvm.s_tir.tensor_intrin"
#: The same for programs that tests start.
WITHOUT_INTRINSICS = (
    f"import sys, types\nsys.modules[{INTRINSICS!r}] = types.ModuleType({INTRINSICS!r})\n"
)


@pytest.fixture
def without_intrinsics(monkeypatch: pytest.MonkeyPatch) -> None:
    if INTRINSICS not in sys.modules:
        monkeypatch.setitem(sys.modules, INTRINSICS, types.ModuleType(INTRINSICS))


def evolution(population: int = 32, generations: int = 2) -> ms.search_strategy.EvolutionarySearch:
    """TVM's search with few candidates, mutated a few times."""
    return ms.search_strategy.EvolutionarySearch(
        population_size=population,
        init_measured_ratio=0.1,
        init_min_unmeasured=8,
        genetic_num_iters=generations,
        genetic_mutate_prob=0.9,
    )


def context(
    func: Any, space: Any, seed: int = 1, target: Any = TARGET, threads: int = 2
) -> ms.TuneContext:
    return ms.TuneContext(
        func,
        target=target,
        space_generator=space,
        search_strategy=evolution(),
        task_name="main",
        num_threads=threads,
        rand_state=seed,
    )


def candidates(
    func: Any, space: Any, count: int, seed: int = 1, threads: int = 2
) -> list[Schedule]:
    """Schedules that the search would measure: sampled, mutated and postprocessed."""
    searched = context(func, space, seed, threads=threads)
    searched.pre_tuning(
        count,
        count,
        searched.generate_design_space(),
        cost_model=ms.cost_model.RandomModel(seed=seed),
    )
    found = [candidate.sch for candidate in searched.generate_measure_candidates()]
    searched.post_tuning()
    return found


def is_fused(sch: Schedule) -> bool:
    return FUSE in str(sch.trace)


def split(schedules: Sequence[Schedule]) -> tuple[list[Schedule], list[Schedule]]:
    """The fused ones and the others."""
    return [s for s in schedules if is_fused(s)], [s for s in schedules if not is_fused(s)]


def kill(pid: int) -> None:
    """Kill a process and its children, as the end of a machine would."""
    process = psutil.Process(pid)
    for one in [*process.children(recursive=True), process]:
        one.kill()


@pytest.fixture(scope="module")
def no_process_stays() -> Iterator[Callable[[], list[psutil.Process]]]:
    """Whatever the tests of a file have started is gone at their end, also if they fail."""

    def children() -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    before = children()
    yield children
    started = [process for process in children() if process not in before]
    for process in started:
        process.kill()
    psutil.wait_procs(started, 10)


@derived_object
class NoBuilder(ms.builder.PyBuilder):
    """Compiles nothing: an empty folder for each candidate."""

    def build(self, build_inputs: Any) -> Any:
        folders = [Path(tempfile.mkdtemp()) for _ in build_inputs]
        return [ms.builder.BuilderResult(str(folder / "built.tar"), None) for folder in folders]


@derived_object
class HereBuilder(ms.builder.PyBuilder):
    """Compiles in this process; TVM's starts processes for every batch, which takes seconds."""

    def build(self, build_inputs: Any) -> Any:
        built = []
        for each in build_inputs:
            file = Path(tempfile.mkdtemp()) / "built.tar"
            tvm.compile(each.mod, target=each.target).export_library(str(file), fcompile=tar)
            built.append(ms.builder.BuilderResult(str(file), None))
        return built


@derived_object
class NoMeasurement(ms.runner.PyRunnerFuture):
    """A measurement that is done, of two times."""

    def done(self) -> bool:
        return True

    def result(self) -> ms.runner.RunnerResult:
        return ms.runner.RunnerResult([1e-3, 2e-3], None)


@derived_object
class NoRunner(ms.runner.PyRunner):
    """Runs nothing: every candidate takes as long."""

    def run(self, runner_inputs: Any) -> Any:
        return [NoMeasurement() for _ in runner_inputs]


def nothing_runs() -> dict[str, Any]:
    """A builder and a runner for tests of what is around them."""
    return {"builder": NoBuilder(), "runner": NoRunner()}
