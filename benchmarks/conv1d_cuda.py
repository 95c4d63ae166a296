"""Depthwise convolutions on a GPU: ours, a copy of the same bytes, and what one would pick instead.

    python benchmarks/conv1d_cuda.py             writes results/conv1d_cuda.json
    python benchmarks/conv1d_cuda.py --quick     some of the shapes, briefly; writes nothing

It takes a GPU and torch; without them it says so, and ends with 2. Peers are torch (cuDNN),
torch.compile, and `causal_conv1d`, kernels written by hand, where that package is installed and the
shape is one of its own.

Every contender is compared with a convolution in float64 before it is timed. It is recorded as a
CUDA graph of several runs, so that what Python does between two runs is not measured; a sample is
the mean time of a run in it, between two events. Contenders are timed in turns, on the same arrays;
who is first changes from turn to turn.

What to read: `copy/ours` is the part of a copy's bandwidth that ours reaches; `x/ours` is how many
times faster ours is than x: medians of the ratios within the turns, with their quartiles. Arrays
that fit into the cache of the GPU stay there: see `mbytes` and the size of the cache in the file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from primitive import Samples, progress, ratio, to_json
from provenance import provenance

import fuse_epilogue
from fuse_epilogue import schedules
from fuse_epilogue.workloads import depthwise_conv1d

RESULTS = Path(__file__).resolve().parent / "results" / "conv1d_cuda.json"
OURS, COPY = "ours", "copy"

TURNS, QUICK_TURNS = 41, 7
GRAPH_S = 2e-3  # the runs of one graph take about that long
MOST_RUNS = 200
NO_GPU = 2  # how the program ends then

# Of the type of the result, and of float32 for the sum: as a part of the largest result.
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Shape:
    """A convolution with bias, NCW."""

    n: int
    c: int
    w: int
    f: int
    padding: str = "same"
    activation: str = "relu"
    dtype: str = "float32"

    @property
    def zeros(self) -> tuple[int, int]:
        """Zeros on the left and on the right."""
        total = self.f - 1
        return (total, 0) if self.padding == "causal" else (total // 2, total - total // 2)

    @property
    def label(self) -> str:
        """What the tables call it."""
        return f"({self.n}, {self.c}, {self.w}, {self.f}) {self.padding} {self.activation}"


SIZES = (
    Shape(8, 512, 2048, 3),
    Shape(1, 64, 2048, 3),
    Shape(1, 5120, 4096, 4, "causal", "silu"),
    Shape(16, 256, 128, 7),
    Shape(4, 768, 197, 3),
    Shape(2, 96, 16000, 16),
    # Beyond the cache: here the memory is the limit.
    Shape(64, 1024, 2048, 3),
    Shape(8, 5120, 8192, 4, "causal", "silu"),
    Shape(64, 1024, 2047, 3),
)
DTYPES = ("float32", "float16", "bfloat16")


# ---- The contenders ------------------------------------------------------------------------------


def operands(torch: Any, shape: Shape) -> list[Any]:
    """Draw x, the filters and the bias, of the type."""
    generator = torch.Generator("cuda").manual_seed(0)
    sizes = [(shape.n, shape.c, shape.w), (shape.c, shape.f), (shape.c,)]
    dtype = getattr(torch, shape.dtype)
    return [torch.randn(s, device="cuda", generator=generator).to(dtype) for s in sizes]


def in_torch(torch: Any, shape: Shape) -> Callable[..., Any]:
    """Return the convolution as one writes it in torch."""
    functional = torch.nn.functional
    left, right = shape.zeros
    bend = functional.silu if shape.activation == "silu" else torch.relu

    def conv(x: Any, weight: Any, bias: Any) -> Any:
        filters = weight[:, None, :]
        if left == right or right == 0:
            full = functional.conv1d(x, filters, bias, padding=left, groups=shape.c)
            return bend(full[..., : shape.w])
        padded = functional.pad(x, shape.zeros)
        return bend(functional.conv1d(padded, filters, bias, groups=shape.c))

    return conv


def by_hand(shape: Shape) -> Callable[..., Any] | None:
    """Return the kernel of the package causal_conv1d, if there is one for this."""
    if shape.padding != "causal" or not 2 <= shape.f <= 4 or shape.activation != "silu":
        return None
    try:
        package = importlib.import_module("causal_conv1d")
    except ImportError:
        return None
    return lambda x, weight, bias: package.causal_conv1d_fn(x, weight, bias, activation="silu")


def contenders(torch: Any, shape: Shape, target: tvm.target.Target) -> dict[str, Callable[[], Any]]:
    """Return what is timed: functions that compute into an array and return it."""
    arrays = operands(torch, shape)
    y = torch.empty_like(arrays[0])
    sizes = (shape.n, shape.c, shape.w, shape.f)
    func = depthwise_conv1d(
        *sizes, padding=shape.padding, dtype=shape.dtype, activation=shape.activation
    )
    main = tvm.compile(schedules.apply(func, target), target=target)["main"]
    arguments = [tvm.runtime.from_dlpack(array) for array in [*arrays, y]]

    def ours() -> Any:
        main(*arguments)
        return y

    conv = in_torch(torch, shape)
    compiled = torch.compile(conv)
    found = {
        OURS: ours,
        COPY: lambda: y.copy_(arrays[0]),
        "torch": lambda: conv(*arrays),
        "torch.compile": lambda: compiled(*arrays),
    }
    kernel = by_hand(shape)
    if kernel is not None:
        found["causal_conv1d"] = lambda: kernel(*arrays)
    expected = conv(*(array.double() for array in arrays))
    for name, run in found.items():
        check(shape, name, run(), arrays[0].double() if name == COPY else expected)
    return found


def check(shape: Shape, name: str, result: Any, expected: Any) -> None:
    """Make sure that a contender has computed what float64 says."""
    error = (result.double() - expected).abs().max().item()
    if not error <= TOLERANCE[shape.dtype] * expected.abs().max().item():
        raise AssertionError(f"{shape.label} {shape.dtype}: '{name}' is off by {error}")


# ---- The measurement -----------------------------------------------------------------------------


def timer(torch: Any, run: Callable[[], Any]) -> Callable[[], float]:
    """Record runs as a graph; return a function that measures one sample, in seconds."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(call: Callable[[], Any]) -> float:
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    for _ in range(3):
        run()
    once = min(timed(run) for _ in range(5))
    runs = max(1, min(MOST_RUNS, round(GRAPH_S / once)))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # TVM launches on the stream that torch records, too.
    with tvm_ffi.use_torch_stream(torch.cuda.graph(graph)):
        for _ in range(runs):
            run()
    graph.replay()
    return lambda: timed(graph.replay) / runs


def measure(torch: Any, shape: Shape, target: tvm.target.Target, turns: int) -> dict[str, Any]:
    """Time all contenders at one shape; return what goes into the file."""
    calls = {name: timer(torch, run) for name, run in contenders(torch, shape, target).items()}
    samples: Samples = {name: [] for name in calls}
    order = list(calls.items())
    for turn in range(turns):
        progress(f"{shape.label} {shape.dtype}: {turn} turns")
        first = turn % len(order)
        for name, call in order[first:] + order[:first]:
            samples[name].append(call())
    progress()
    size = 2 * shape.n * shape.c * shape.w * getattr(torch, shape.dtype).itemsize
    medians = {name: statistics.median(times) for name, times in samples.items()}
    return {
        **asdict(shape),
        "mbytes": size / 1e6,
        "median_us": {name: seconds * 1e6 for name, seconds in medians.items()},
        "gbytes_per_s": {name: size / seconds / 1e9 for name, seconds in medians.items()},
        "over_ours": {name: ratio(samples, name, OURS) for name in samples if name != OURS},
        "samples_us": {n: [round(s * 1e6, 2) for s in times] for n, times in samples.items()},
    }


# ---- The run -------------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    """Print the line of one shape."""
    shape = Shape(**{name: result[name] for name in Shape.__dataclass_fields__})
    ratios = " ".join(f"{n}/ours {r['median']:.2f}" for n, r in result["over_ours"].items())
    speed = result["gbytes_per_s"][OURS]
    print(
        f"{shape.label:40} {shape.dtype:9} {result['mbytes']:7.1f} MB {speed:6.0f} GB/s  {ratios}"
    )


def conditions(torch: Any, target: tvm.target.Target) -> dict[str, Any]:
    """Return what has to be known about a run to judge its figures."""
    device = torch.cuda.get_device_properties(0)
    return {
        "benchmark": "conv1d_cuda",
        **provenance("conv1d_cuda"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "gpu": device.name,
            "multiprocessors": device.multi_processor_count,
            "cache_mbytes": device.L2_cache_size / 1e6,
        },
        "target": str(target),
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "tvm_ffi": tvm_ffi.__version__,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "python": platform.python_version(),
        },
        "clock": "CUDA events around a graph of runs",
    }


def torch_with_gpu() -> Any:
    """Return torch; end the program where there is no GPU for it and TVM."""
    if not tvm.cuda().exist:
        print("There is no GPU here: nothing is measured.", file=sys.stderr)
        sys.exit(NO_GPU)
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        print("The peers need torch: install it with CUDA.", file=sys.stderr)
        sys.exit(NO_GPU)
    if not torch.cuda.is_available():
        print("This torch has no CUDA: nothing is measured.", file=sys.stderr)
        sys.exit(NO_GPU)
    return torch


def main() -> None:
    """Measure, print the table, write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few shapes, few samples")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON file to write (default: results/conv1d_cuda.json here; none with --quick)",
    )
    args = parser.parse_args()
    output = args.output or (None if args.quick else RESULTS)
    torch = torch_with_gpu()
    target = tvm.target.Target.from_device("cuda")
    report = conditions(torch, target)
    print(f"{report['machine']['gpu']}, {target}")
    report["results"] = []
    for size in SIZES[:3] if args.quick else SIZES:
        for dtype in DTYPES[:1] if args.quick else DTYPES:
            shape = Shape(**{**asdict(size), "dtype": dtype})
            turns = QUICK_TURNS if args.quick else TURNS
            report["results"].append(measure(torch, shape, target, turns))
            show(report["results"][-1])
            torch.cuda.empty_cache()
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(report))
        print(f"\nThe samples are in {output.name}.")


if __name__ == "__main__":
    main()
