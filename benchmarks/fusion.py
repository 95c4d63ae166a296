"""What fusing gains: unfused, TVM's own primitives by hand, and ours, at the same tiling.

Matmuls and a depthwise convolution with a bias, and a bias and an activation, are compiled for LLVM
in three versions each (`fusion_variants.py`) of the programs in `fusion_programs.py`. Every version
is compared with numpy before it is timed: bit for bit where whole numbers make float32 exact.

    python benchmarks/fusion.py            about six minutes; writes results/fusion.json
    python benchmarks/fusion.py --quick    a part of the programs, briefly; writes nothing
    python benchmarks/fusion.py --only row    the families whose names begin with "row"

The versions of a program are timed in turns, on the same arrays; who is first changes from turn to
turn. After each quarter of the turns the arrays lie elsewhere in memory, which can change the times
of one version beside another's. A sample is the mean of as many runs as take some milliseconds,
after one that is not timed.
Times are those that passed: with several threads, time on the processors would count threads that
wait for one another. What other processes had of the processors meanwhile is measured beside.

What to read: `x/ours` is how many times faster ours is than x: the median of the ratios within the
turns, with its quartiles. "Nothing" is less than 5 % either way; where it is more, but 1 lies
between the quartiles, the run does not tell.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Before numpy is loaded: its threads would go on spinning in the samples.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tvm
import tvm_ffi
from fusion_programs import OURS, Family, Program, families
from fusion_report import evaluate, refusals, show
from fusion_variants import variants
from primitive import Samples, cpu_model, progress, ratio, to_json
from provenance import provenance

import fuse_epilogue
from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results" / "fusion.json"

SAMPLE_S = 0.02  # a sample takes about that long, or one run
NOISY = 0.1  # distance of a ratio's quartiles, as a part of it, from where on more is measured
FLOAT_TOLERANCE = 1e-5  # absolute and relative, where float32 is not exact


@dataclass(frozen=True)
class Effort:
    """How long each place is timed: turns at least, seconds at least, seconds at most if noisy."""

    turns: int
    seconds: float
    at_most: float


FULL, QUICK = Effort(4, 0.4, 0.8), Effort(3, 0.1, 0.2)
PLACES = 4  # of the arrays in memory
SHIFT = 8_256  # bytes between places: whole cache lines, but no whole pages


# ---- Compiling and checking ----------------------------------------------------------------------


def use_threads(count: int) -> int:
    """Have TVM run parallel loops with that many threads; return how many it really takes.

    Only the variable makes TVM take more than half of the processors, and only before its pool of
    threads exists.
    """
    os.environ["TVM_NUM_THREADS"] = str(count)
    return int(tvm.get_global_func("runtime.NumThreads")())


def inputs(program: Program) -> list[np.ndarray]:
    """Draw whole numbers from -8 to 8 where float32 is exact then, standard normals elsewhere."""
    draw = np.random.default_rng(0)
    if program.exact:
        return [draw.integers(-8, 9, shape).astype(np.float32) for shape in program.shapes]
    return [draw.standard_normal(shape, dtype=np.float32) for shape in program.shapes]


def check(program: Program, name: str, result: np.ndarray, expected: np.ndarray) -> None:
    """Make sure that a version has computed what numpy has."""
    if program.exact:
        same = np.array_equal(result, expected)
    else:
        same = np.allclose(result, expected, rtol=FLOAT_TOLERANCE, atol=FLOAT_TOLERANCE)
    if not same:
        raise AssertionError(
            f"{program.reduction} {program.epilogue}, {program.label}: '{name}' computes nonsense"
        )


def timers(program: Program, modules: dict[str, Any], place: int) -> dict[str, Callable[[], float]]:
    """Check all versions on arrays of that place; return a function for each: one sample."""
    arrays = inputs(program)
    expected = program.reference(arrays)
    nowhere = np.full(expected.shape, np.nan, np.float32)
    arguments = [
        laid(array, (place * (number + 1)) * SHIFT)
        for number, array in enumerate([*arrays, nowhere])
    ]
    device = tvm.cpu()
    calls: dict[str, Callable[[], float]] = {}
    for name, module in modules.items():
        arguments[-1].copyfrom(nowhere)
        module["main"](*arguments)
        check(program, name, arguments[-1].numpy(), expected)
        once = module.time_evaluator("main", device, number=1)(*arguments).mean
        number = max(1, round(SAMPLE_S / once))
        evaluator = module.time_evaluator("main", device, number=number)
        calls[name] = mean_of(evaluator, arguments)
    return calls


def laid(array: np.ndarray, offset: int) -> Any:
    """A copy for TVM that begins so many bytes behind the start of a page."""
    page = os.sysconf("SC_PAGE_SIZE")
    memory = np.empty(array.nbytes + offset + page, np.uint8)
    start = -memory.ctypes.data % page + offset
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return tvm.runtime.from_dlpack(copy)


def mean_of(evaluator: Any, arguments: Sequence[Any]) -> Callable[[], float]:
    """Return a function that runs TVM's evaluator and gives the mean time of a run, in seconds."""
    return lambda: float(evaluator(*arguments).mean)


# ---- The measurement -----------------------------------------------------------------------------


def sample(calls: dict[str, Callable[[], float]], effort: Effort, title: str) -> Samples:
    """Time all versions in turns until there is enough, or more of it would not help."""
    samples: Samples = {name: [] for name in calls}
    order = list(calls.items())
    start, turn = time.perf_counter(), 0
    gc.collect()
    gc.disable()
    try:
        while True:
            first = turn % len(order)
            for name, call in order[first:] + order[:first]:
                samples[name].append(call())
            turn += 1
            passed = time.perf_counter() - start
            progress(f"{title}: {turn} turns, {passed:.1f} s")
            if turn < effort.turns or passed < effort.seconds:
                continue
            if passed >= effort.at_most or not noisy(samples):
                return samples
    finally:
        gc.enable()


def noisy(samples: Samples) -> bool:
    """Return whether the quartiles of a ratio are too far apart."""
    spreads = [ratio(samples, name, OURS) for name in samples if name != OURS]
    return any(s["upper_quartile"] - s["lower_quartile"] > NOISY * s["median"] for s in spreads)


class Others:
    """Measures what part of the processors' time other processes take, from its creation on."""

    def __init__(self) -> None:
        self.start = self.now()

    @staticmethod
    def now() -> tuple[float, float, float] | None:
        """Return seconds that passed, that all processors were busy, and that this process had."""
        try:
            fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
        except OSError:
            return None
        user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields)
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy, time.process_time()

    def share(self) -> float | None:
        """Return the part taken by others since then; None where the system does not tell."""
        now = self.now()
        if now is None or self.start is None:
            return None
        passed, busy, own = (b - a for a, b in zip(self.start, now, strict=True))
        return round(max(0.0, busy - own) / (passed * (os.cpu_count() or 1)), 3)


def measure(family: Family, target: tvm.target.Target, effort: Effort) -> dict[str, Any]:
    """Time all programs of a family; return what goes into the file."""
    others, results = Others(), []
    for program in family.programs:
        title = f"{family.key} {program.epilogue}, {program.label}"
        progress(f"{title}: compiling")
        built, refused = variants(program)
        modules = {name: tvm.compile(v.function, target=target).mod for name, v in built.items()}
        samples: Samples = {name: [] for name in modules}
        for place in range(PLACES):
            for name, times in sample(timers(program, modules, place), effort, title).items():
                samples[name] += times
        results.append(evaluate(program, built, refused, samples))
    progress()
    return {
        "title": family.title,
        "loops": family.loops,
        "others_share_of_processors": others.share(),
        "programs": results,
    }


# ---- The run -------------------------------------------------------------------------------------


def conditions(target: tvm.target.Target, threads: int) -> dict[str, Any]:
    """Return what has to be known about a run to judge its figures."""
    return {
        "benchmark": "fusion",
        **provenance("fusion"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "target": str(target),
        "threads": threads,
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "tvm_ffi": tvm_ffi.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "clock": "time that passed",
    }


def chosen(args: argparse.Namespace) -> list[Family]:
    """Return the families to measure; quickly, the first and last program of each epilogue."""
    every = families()
    some = [f for f in every if not args.only or f.key.startswith(tuple(args.only))]
    if not some:
        raise SystemExit(f"--only takes the start of one of: {', '.join(f.key for f in every)}")
    if not args.quick:
        return some
    return [replace(family, programs=ends(family.programs)) for family in some]


def ends(programs: Sequence[Program]) -> tuple[Program, ...]:
    """Return the first and the last program of each epilogue."""
    first = {program.epilogue: program for program in reversed(programs)}
    last = {program.epilogue: program for program in programs}
    return tuple(p for p in programs if p is first[p.epilogue] or p is last[p.epilogue])


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few programs, few samples")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="families whose names begin so (repeatable)"
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="(default: one for every core)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON file to write (default: results/fusion.json here; none with --quick or --only)",
    )
    args = parser.parse_args()
    output = args.output or (None if args.quick or args.only else RESULTS)
    selected, effort = chosen(args), QUICK if args.quick else FULL

    threads = use_threads(args.threads)
    target = host(threads)
    report = conditions(target, threads)
    print(f"{report['machine']['cpu']}, {threads} threads, {report['target']}; times in ms")
    report["results"] = {}
    for family in selected:
        result = measure(family, target, effort)
        report["results"][family.key] = result
        show(family, result)
    print("", *refusals(report["results"].values()), sep="\n")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(report))
        print(f"\nThe samples are in {output.name}.")


if __name__ == "__main__":
    main()
