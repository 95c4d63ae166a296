"""Time of one fusion as the module grows, beside TVM's own primitive.

A matmul and a bias that is added to it are fused in modules of 1 to 1,000 such layers: once with
all layers in one function, as a chain, and once with a function for every layer. TVM's own
primitive gets this program right, so both can be timed on it: alternately, each call on a fresh
schedule of the same module, and on the same layer. Compared are the functions behind the Python
methods, called with two block random variables. The method of this package is timed as well.

Times are of the calling thread on its processor: a fusion uses no other thread, and what else runs
on the machine disturbs that clock least. The time that passed meanwhile is in the file too.

    python benchmarks/primitive.py            about two minutes; writes results/primitive.json
    python benchmarks/primitive.py --quick    small modules, some seconds; writes nothing

What to read: `ratio` is the median of the ratios within the repetitions, each taken back to back,
with its quartiles; `growth` is the median time over that with one layer; the slopes are those of
straight lines through the medians.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from provenance import provenance
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

import fuse_epilogue

RESULTS = Path(__file__).resolve().parent / "results" / "primitive.json"

EXTENT = 16  # of every axis: the time of a fusion does not depend on it
DTYPE = "int32"

# Layers in the module, and how often each contender is timed there.
REPETITIONS = {1: 300, 10: 200, 100: 80, 300: 30, 1000: 17}
QUICK_REPETITIONS = {1: 60, 10: 40, 100: 15}

OURS, TVM, METHOD = "ours", "tvm", "method"

Blocks = tuple[Any, Any]  # block random variables: the reduction, its epilogue
Samples = dict[str, list[float]]  # contender -> seconds, one for each repetition


@dataclass(frozen=True)
class Measured:
    """The samples of one module: seconds of the thread on its processor, and seconds passed."""

    cpu: Samples
    wall: Samples


# ---- The modules ---------------------------------------------------------------------------------


def add_layer(index: int, x: Any, weight: Any, bias: Any, out: Any) -> None:
    """Add ``out = x @ weight + bias`` to the function under construction, as two blocks."""
    temp = T.sblock_alloc_buffer((EXTENT, EXTENT), DTYPE)
    IRBuilder.name(f"temp_{index}", temp)
    with T.grid(EXTENT, EXTENT, EXTENT) as loops, T.sblock(f"matmul_{index}"):
        i, j, k = T.axis.remap("SSR", list(loops))
        with T.init():
            T.buffer_store(temp, 0, [i, j])
        T.buffer_store(temp, temp[i, j] + x[i, k] * weight[k, j], [i, j])
    with T.grid(EXTENT, EXTENT) as loops, T.sblock(f"bias_{index}"):
        i, j = T.axis.remap("SS", list(loops))
        T.buffer_store(out, temp[i, j] + bias[i, j], [i, j])


def layers(name: str, indices: Sequence[int]) -> tvm.tirx.PrimFunc:
    """Build a function that applies the layers of these numbers one after the other."""

    def parameter(parameter_name: str) -> Any:
        return T.arg(parameter_name, T.Buffer((EXTENT, EXTENT), DTYPE))

    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            x = parameter("X")
            weights = [parameter(f"W_{index}") for index in indices]
            biases = [parameter(f"C_{index}") for index in indices]
            result = parameter("Y")
            for index, weight, bias in zip(indices, weights, biases, strict=True):
                out = result
                if index != indices[-1]:
                    out = T.sblock_alloc_buffer((EXTENT, EXTENT), DTYPE)
                    IRBuilder.name(f"X_{index + 1}", out)
                add_layer(index, x, weight, bias, out)
                x = out
        return builder.get()


@dataclass(frozen=True)
class Arrangement:
    """How n layers make a module: in functions of `layers_of(n)`, by their names."""

    key: str
    title: str
    layers_of: Callable[[int], dict[str, Sequence[int]]]
    function_of: Callable[[int], str]

    def module(self, size: int) -> tvm.IRModule:
        """Build a module of `size` layers."""
        named = self.layers_of(size).items()
        return tvm.IRModule({name: layers(name, indices) for name, indices in named})


ARRANGEMENTS = (
    Arrangement(
        "one_function",
        "all layers in one function",
        lambda size: {"main": range(size)},
        lambda index: "main",
    ),
    Arrangement(
        "many_functions",
        "one function for every layer",
        lambda size: {f"layer_{index}": [index] for index in range(size)},
        lambda index: f"layer_{index}",
    ),
)


# ---- The contenders ------------------------------------------------------------------------------


def contenders() -> dict[str, Callable[[Schedule, Any, Any], Any]]:
    """Return what is timed, by name; all take a schedule and two block random variables."""
    exact, distribute = False, False  # as the method passes them by default
    fuse = tvm.get_global_func("fuse_epilogue.FuseReductionEpilogue")
    return {
        OURS: lambda sch, block, epilogue: fuse(sch, block, epilogue, exact, distribute),
        # What TVM's own method calls. This package leaves that function alone.
        TVM: tvm.get_global_func("s_tir.schedule.ScheduleFuseReductionEpilogue"),
        METHOD: Schedule.fuse_reduction_epilogue,
    }


def fresh(arrangement: Arrangement, module: tvm.IRModule, index: int) -> tuple[Schedule, Blocks]:
    """Create a schedule of the module and find the blocks of a layer in it."""
    sch = Schedule(module)
    function = arrangement.function_of(index)
    reduction = sch.get_sblock(f"matmul_{index}", func_name=function)
    return sch, (reduction, sch.get_sblock(f"bias_{index}", func_name=function))


def check(arrangement: Arrangement, module: tvm.IRModule, index: int) -> None:
    """Make sure that both primitives fuse the layer, to the same block, each in its own way.

    Only TVM's leaves the intermediate among the allocations: that tells its code from ours.
    """
    fused = {}
    for name, call in contenders().items():
        sch, (reduction, epilogue) = fresh(arrangement, module, index)
        call(sch, reduction, epilogue)
        fused[name] = sch.get(reduction)
        root = sch.mod[arrangement.function_of(index)].body.block
        leaves = any(buffer.name == f"temp_{index}" for buffer in root.alloc_buffers)
        assert leaves == (name == TVM), f"'{name}' is not the primitive it should be"
        blocks = [block.name_hint for block in blocks_of(root)]
        assert f"matmul_{index}" in blocks and f"bias_{index}" not in blocks, f"'{name}' failed"
    for name in (OURS, METHOD):
        same = tvm_ffi.structural_equal(fused[name], fused[TVM], map_free_vars=True)
        assert same, f"'{name}' makes another block than TVM:\n{fused[name]}\n{fused[TVM]}"


def blocks_of(root: Any) -> Iterable[Any]:
    """Return the blocks directly in a function's root block, whose body is a row of loop nests."""
    for nest in getattr(root.body, "seq", [root.body]):
        while isinstance(nest, tvm.tirx.For):
            nest = nest.body
        yield nest.block


# ---- The measurement -----------------------------------------------------------------------------


def measure(arrangement: Arrangement, size: int, repetitions: int) -> Measured:
    """Time the fusion of one layer in a module of `size` layers.

    All contenders of a repetition fuse the same layer, which is drawn anew for each; who is first
    changes from one repetition to the next. Creating and releasing schedules is not timed. It does
    drive the code out of the processor's caches, and the more the larger the module is; as that is
    no growth of the fusion, each call follows one that is not timed, in a module of one layer.
    """
    module, small = arrangement.module(size), arrangement.module(1)
    calls = list(contenders().items())
    measured = Measured({name: [] for name, _ in calls}, {name: [] for name, _ in calls})
    draw = random.Random(size)
    check(arrangement, module, draw.randrange(size))

    gc.collect()
    gc.disable()
    try:
        for repetition in range(repetitions):
            progress(f"{arrangement.title}: {size} layers, {repetition + 1}/{repetitions}")
            index = draw.randrange(size)
            first = repetition % len(calls)
            for name, call in calls[first:] + calls[:first]:
                sch, (reduction, epilogue) = fresh(arrangement, module, index)
                small_sch, small_blocks = fresh(arrangement, small, 0)
                call(small_sch, *small_blocks)
                passed, start = time.perf_counter(), time.thread_time()
                result = call(sch, reduction, epilogue)
                measured.cpu[name].append(time.thread_time() - start)
                measured.wall[name].append(time.perf_counter() - passed)
                del result, sch, reduction, epilogue, small_sch, small_blocks
    finally:
        gc.enable()
    return measured


def progress(text: str = "") -> None:
    """Replace the progress line; only where somebody may be looking."""
    if sys.stderr.isatty():
        print(f"\r{text:<78}", end="" if text else "\r", file=sys.stderr, flush=True)


# ---- The evaluation ------------------------------------------------------------------------------


def in_turns(timed: dict[str, Callable[[], list[float]]], turns: int) -> Samples:
    """Time contenders one after the other; another one is the first in each turn."""
    samples: Samples = {name: [] for name in timed}
    order = list(timed)
    for turn in range(turns):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            samples[name].append(statistics.median(timed[name]()))
    return samples


def ratio(samples: Samples, name: str, base: str) -> dict[str, float]:
    """Return the quartiles of the ratios of two contenders within the repetitions."""
    ratios = [a / b for a, b in zip(samples[name], samples[base], strict=True)]
    lower, middle, upper = statistics.quantiles(ratios, n=4)
    return {"lower_quartile": lower, "median": middle, "upper_quartile": upper}


def slope(medians: dict[int, float]) -> float:
    """Return the seconds that one more layer in the module costs each fusion."""
    return statistics.linear_regression(list(medians), list(medians.values())).slope


def rounded(samples: Samples) -> Samples:
    """Round to 0.1 us, for the file."""
    return {name: [round(value, 7) for value in values] for name, values in samples.items()}


def evaluate(measured: dict[int, Measured]) -> dict[str, Any]:
    """Sum up what was measured of one arrangement, by module size."""
    raw = {size: both.cpu for size, both in measured.items()}
    medians = {
        name: {size: statistics.median(samples[name]) for size, samples in raw.items()}
        for name in (OURS, TVM, METHOD)
    }
    smallest = min(raw)
    growth = {
        name: {size: value / by_size[smallest] for size, value in by_size.items()}
        for name, by_size in medians.items()
    }
    slopes = {name: slope(by_size) for name, by_size in medians.items()}
    return {
        "median_s": medians,
        "ratio_ours_to_tvm": {size: ratio(samples, OURS, TVM) for size, samples in raw.items()},
        "ratio_method_to_ours": {
            size: ratio(samples, METHOD, OURS) for size, samples in raw.items()
        },
        "growth": growth,
        "slope_s_per_layer": slopes,
        "slope_ratio_ours_to_tvm": slopes[OURS] / slopes[TVM],
        "samples_s": {size: rounded(both.cpu) for size, both in measured.items()},
        "samples_wall_s": {size: rounded(both.wall) for size, both in measured.items()},
    }


def show(arrangement: Arrangement, result: dict[str, Any]) -> None:
    """Print one arrangement's table."""
    print(f"\nOne fusion, {arrangement.title} (median times in ms)")
    print(
        f"{'layers':>7}{'TVM':>10}{'ours':>10}{'method':>10}{'ours/TVM':>11}{'quartiles':>15}"
        f"{'growth TVM':>13}{'ours':>8}"
    )
    medians, growth = result["median_s"], result["growth"]
    for size, spread in result["ratio_ours_to_tvm"].items():
        times = "".join(f"{medians[name][size] * 1e3:10.3f}" for name in (TVM, OURS, METHOD))
        quartiles = f"{spread['lower_quartile']:.2f}..{spread['upper_quartile']:.2f}"
        print(
            f"{size:7}{times}{spread['median']:11.2f}{quartiles:>15}"
            f"{growth[TVM][size]:13.1f}{growth[OURS][size]:8.1f}"
        )
    slopes = result["slope_s_per_layer"]
    print(
        f"Each further layer adds {slopes[OURS] * 1e6:.2f} us to a fusion, with TVM's primitive "
        f"{slopes[TVM] * 1e6:.2f} us: {result['slope_ratio_ours_to_tvm']:.2f} times as much."
    )


def cpu_model() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def conditions(repetitions: dict[int, int], load: float) -> dict[str, Any]:
    """Return what has to be known about a run to judge its figures."""
    return {
        "benchmark": "primitive",
        **provenance("primitive"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "load_before": round(load, 2)},
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "tvm_ffi": tvm_ffi.__version__,
            "python": platform.python_version(),
        },
        "workload": f"matmul + bias, {EXTENT} x {EXTENT} x {EXTENT}, {DTYPE}",
        "contenders": {
            OURS: "global function fuse_epilogue.FuseReductionEpilogue",
            TVM: "global function s_tir.schedule.ScheduleFuseReductionEpilogue",
            METHOD: "method Schedule.fuse_reduction_epilogue of this package",
        },
        "repetitions": repetitions,
    }


def to_json(report: dict[str, Any]) -> str:
    """Write the report as JSON with every list of samples on a line of its own."""
    text = json.dumps(report, indent=1)
    return re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="modules of up to 100 layers only")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON file to write (default: results/primitive.json here; none with --quick)",
    )
    args = parser.parse_args()
    repetitions = QUICK_REPETITIONS if args.quick else REPETITIONS
    output = args.output or (None if args.quick else RESULTS)

    report = conditions(repetitions, os.getloadavg()[0])
    report["results"] = {}
    for arrangement in ARRANGEMENTS:
        measured = {size: measure(arrangement, size, times) for size, times in repetitions.items()}
        progress()
        report["results"][arrangement.key] = evaluate(measured)
        show(arrangement, report["results"][arrangement.key])
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(report))
        print(f"\nThe samples are in {output.name}.")


if __name__ == "__main__":
    main()
