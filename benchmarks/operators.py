"""Operators on odd sizes, one by one, on one thread: our kernels beside TVM's own loops.

Each operator is a function of Relax, lowered as in a model. The parties compute the same PrimFunc:

- ours: as `fuse_epilogue.transform.ScheduleModule` schedules it;
- TVM: with the loops that TVM's default pipeline gives it, compiled for the same processor.

    python benchmarks/operators.py                five minutes; writes results/operators.json
    python benchmarks/operators.py --only pool    a part; writes nothing

Results are compared first: integers and movements bit for bit, floats within 1e-5 of the largest.
A sample is the processor time of as many runs as take 2 ms; parties take turns. What to read:
`ours/best`: above 1.02 TVM's own loops would have been better. A call by itself takes 0.1 us.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from fusion import conditions
from planner import spearman
from primitive import Samples, progress, ratio, to_json
from provenance import provenance
from tvm import ir, relax, tirx

from fuse_epilogue.models.pipeline import function_passes
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import FunctionSchedule, ScheduleModule, schedules_of

RESULTS = Path(__file__).resolve().parent / "results" / "operators.json"
OURS, TVM = "ours", "TVM"
TOLERANCE = 1e-5  # of the largest result, for floats
TURNS = 15
SAMPLE_S = 0.002

op, nn = relax.op, relax.op.nn


def _pool(kind: str, layout: str, size: int, stride: int, pad: int) -> Callable[[Any], Any]:
    function = nn.max_pool2d if kind == "max" else nn.avg_pool2d
    return lambda x: function(x, (size, size), stride, pad, layout=layout)


def _take(axis: int, count: int) -> Callable[[Any], Any]:
    indices = np.random.default_rng(0).integers(0, 7, count).astype("int64")
    return lambda x: op.take(x, relax.const(indices), axis=axis)


#: By name: shapes of the inputs, and the operator. Types are float32.
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    **{
        f"pool-{kind}-{layout}-{size}x{size}s{stride}-{'x'.join(map(str, shape))}": (
            (shape,),
            _pool(kind, layout, size, stride, pad),
        )
        for kind, layout, size, stride, pad, shape in (
            ("max", "NHWC", 3, 2, 1, (1, 112, 112, 3)),
            ("avg", "NHWC", 3, 2, 1, (1, 112, 112, 3)),
            ("max", "NHWC", 3, 2, 1, (1, 112, 112, 64)),
            ("max", "NHWC", 2, 2, 0, (1, 56, 56, 5)),
            ("avg", "NHWC", 2, 2, 0, (1, 28, 28, 130)),
            ("max", "NCHW", 2, 2, 0, (1, 16, 112, 112)),
            ("avg", "NCHW", 2, 2, 0, (1, 16, 112, 112)),
            ("max", "NCHW", 3, 2, 1, (1, 3, 112, 112)),
            ("max", "NCHW", 3, 1, 1, (1, 17, 31, 29)),
            ("avg", "NCHW", 3, 1, 1, (1, 17, 31, 29)),
            ("avg", "NCHW", 7, 1, 0, (1, 64, 7, 7)),
        )
    },
    **{
        f"{name}-axis{axis}-{'x'.join(map(str, shape))}": (
            (shape,),
            lambda x, reduce=reduce, axis=axis: reduce(x, axis),
        )
        for name, reduce in (("sum", op.sum), ("max", op.max), ("mean", op.mean))
        for shape, axis in (
            ((1000, 7), 1),
            ((1000, 16), 1),
            ((100, 33), 1),
            ((7, 1000), 0),
            ((1000, 7), 0),
            ((31, 3, 129), 1),
            ((3, 65, 65), (0, 2)),
            ((8, 49, 96), 1),
            ((129, 257), None),
        )
    },
    "argmax-axis1-100x1000": (((100, 1000),), lambda x: op.argmax(x, 1)),
    "argmax-axis0-100x1000": (((100, 1000),), lambda x: op.argmax(x, 0)),
    "softmax-axis1-64x7": (((64, 7),), lambda x: nn.softmax(x, 1)),
    "softmax-axis0-17x300": (((17, 300),), lambda x: nn.softmax(x, 0)),
    "softmax-axis1-4x21x300": (((4, 21, 300),), lambda x: nn.softmax(x, 1)),
    "concat-axis1-3": (((37, 5), (37, 64), (37, 1)), lambda *x: op.concat(x, 1)),
    "concat-axis0-2": (((3, 1000), (5, 1000)), lambda *x: op.concat(x, 0)),
    "concat-axis1-4x16": (((1, 16, 28, 28),) * 4, lambda *x: op.concat(x, 1)),
    "concat-axis3-channels": (((1, 28, 28, 24), (1, 28, 28, 40)), lambda *x: op.concat(x, 3)),
    "split-axis1": (((64, 96),), lambda x: op.split(x, 3, 1)),
    "slice-step2": (((65, 301),), lambda x: op.strided_slice(x, [1], [1], [301], [2])),
    "slice-rows": (((100, 64),), lambda x: op.strided_slice(x, [0], [3], [97], [1])),
    "pad-image": (((1, 3, 32, 32),), lambda x: nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])),
    "pad-channels": (((1, 28, 28, 13),), lambda x: nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 3])),
    "take-rows": (((64, 100),), _take(0, 33)),
    "take-columns": (((64, 100),), _take(1, 33)),
    "transpose-37x41": (((37, 41),), lambda x: op.permute_dims(x, [1, 0])),
    "transpose-heads": (((128, 12, 64),), lambda x: op.permute_dims(x, [1, 0, 2])),
    "transpose-nchw-3": (((1, 3, 56, 56),), lambda x: op.permute_dims(x, [0, 2, 3, 1])),
    "transpose-nhwc-3": (((1, 56, 56, 3),), lambda x: op.permute_dims(x, [0, 3, 1, 2])),
    "transpose-nchw-12": (((1, 12, 56, 56),), lambda x: op.permute_dims(x, [0, 2, 3, 1])),
    "transpose-nhwc-12": (((1, 56, 56, 12),), lambda x: op.permute_dims(x, [0, 3, 1, 2])),
    "transpose-nhwc-24": (((1, 56, 56, 24),), lambda x: op.permute_dims(x, [0, 3, 1, 2])),
    "slice-step3": (((65, 301),), lambda x: op.strided_slice(x, [1], [1], [301], [3])),
    "slice-step5-relu": (
        ((65, 301),),
        lambda x: nn.relu(op.strided_slice(x, [1], [1], [301], [5])),
    ),
    "tile-3": (((7, 33),), lambda x: op.tile(x, [3, 2])),
    "broadcast-add": (((1, 33), (65, 1)), op.add),
    "add-bias-7": (((300, 7), (7,)), op.add),
    "where": (
        ((31, 33),),
        lambda x: op.where(op.greater(x, relax.const(0.0)), x, relax.const(0.0)),
    ),
    "cumsum-axis1": (((33, 65),), lambda x: op.cumsum(x, 1)),
    "flip": (((33, 65),), lambda x: op.flip(x, 1)),
    "tanh-1": (((1,),), op.tanh),
    "tanh-7x13": (((7, 13),), op.tanh),
    "matmul-1x1x1": (((1, 1), (1, 1)), op.matmul),
    "matmul-2x3x4": (((2, 4), (4, 3)), op.matmul),
    "matmul-7x5x3": (((7, 3), (3, 5)), op.matmul),
    "matmul-1x10x64": (((1, 64), (64, 10)), op.matmul),
    "matmul-1x1000x512": (((1, 512), (512, 1000)), op.matmul),
    "matmul-33x1x200": (((33, 200), (200, 1)), op.matmul),
    "matmul-batch-50x2x2x2": (((50, 2, 2), (50, 2, 2)), op.matmul),
    "matmul-batch-12x3x64x3": (((12, 3, 64), (12, 64, 3)), op.matmul),
    "conv-1x1-to-1": (((1, 64, 56, 56), (1, 64, 1, 1)), lambda x, w: nn.conv2d(x, w)),
    "conv-3x3-1-to-1": (((1, 1, 33, 33), (1, 1, 3, 3)), lambda x, w: nn.conv2d(x, w, padding=1)),
    "conv-3x3-3-to-2": (((1, 3, 33, 33), (2, 3, 3, 3)), lambda x, w: nn.conv2d(x, w, padding=1)),
    "softmax-axis1-500x3": (((500, 3),), lambda x: nn.softmax(x, 1)),
    "layer-norm-7": (
        ((100, 7), (7,), (7,)),
        lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1]),
    ),
}


def lower(
    shapes: Sequence[tuple[int, ...]], build: Callable[..., Any], fused: bool = True
) -> ir.IRModule:
    """Return operators as a module of PrimFuncs, and of the Relax function that calls them."""
    params = [
        relax.Var(f"x{place}", relax.TensorType(shape, "float32"))
        for place, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(build(*params)))
        builder.emit_func_output(out)
    passes = [
        each for each in function_passes() if fused or each.info.name not in ("FuseOps", "FuseTIR")
    ]
    with host(1):
        return ir.transform.Sequential(passes)(builder.get())


def parties(mod: ir.IRModule) -> tuple[dict[str, Any], FunctionSchedule]:
    """Return the compiled function of each party, and what became of ours."""
    scheduled = ScheduleModule(host(1))(mod)
    made = {}
    for party, each in ((OURS, scheduled), (TVM, mod)):
        funcs = {v: f for v, f in each.functions.items() if isinstance(f, tirx.PrimFunc)}
        (func,) = funcs.values()
        func = func.with_attr("global_symbol", "main")
        made[party] = tvm.compile(tvm.IRModule({"main": func}), target=host(1))["main"]
    (report,) = schedules_of(scheduled) or ()
    return made, report


def arrays_of(mod: ir.IRModule) -> list[np.ndarray]:
    """Return an array for each parameter: normal numbers, or indices."""
    rng = np.random.default_rng(0)
    (func,) = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    arrays = []
    for param in func.params:
        shape, dtype = tuple(map(int, param.shape)), str(param.dtype)
        if dtype == "float32":
            arrays.append(rng.standard_normal(shape, dtype))
        else:
            arrays.append(rng.integers(0, 7, shape).astype(dtype))
    return arrays


def measure(name: str, turns: int) -> dict[str, Any]:
    """Compare the parties' results and time them in turns."""
    mod = lower(*CASES[name])
    made, schedule = parties(mod)
    given = {party: [tvm.runtime.tensor(array) for array in arrays_of(mod)] for party in made}
    for party, function in made.items():
        function(*given[party])
    differences = [
        float(np.abs(a.numpy().astype("float64") - b.numpy()).max())
        / max(1e-30, float(np.abs(b.numpy()).max()))
        for a, b in zip(given[OURS], given[TVM], strict=True)
    ]
    if not max(differences) <= TOLERANCE:
        raise RuntimeError(f"{name}: ours is {max(differences):.1e} off")

    def sample(party: str, count: int) -> float:
        function, arrays = made[party], given[party]
        begin = time.process_time()
        for _ in range(count):
            function(*arrays)
        return (time.process_time() - begin) / count

    counts = {party: max(3, min(3000, round(SAMPLE_S / sample(party, 20)))) for party in made}
    samples: Samples = {party: [] for party in made}
    order = list(made)
    for turn in range(turns):
        for party in order[turn % 2 :] + order[: turn % 2]:
            samples[party].append(sample(party, counts[party]))
    return {
        "kind": schedule.kind,
        "predicted_s": schedule.predicted_s,
        "parties": {OURS: {"difference": max(differences)}, TVM: {"difference": 0.0}},
        "median_s": {party: statistics.median(each) for party, each in samples.items()},
        "best": TVM,
        "ours/best": ratio(samples, OURS, TVM),
        "samples_s": {p: [float(f"{t:.4g}") for t in times] for p, times in samples.items()},
    }


def correlations(rows: dict[str, dict[str, Any]]) -> dict[str, tuple[int, float]]:
    """Return the number of operators by kind, and the rank correlation of their predictions."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for row in rows.values():
        pair = (row["1"]["predicted_s"], row["1"]["median_s"][OURS])
        kinds.setdefault(row["1"]["kind"], []).append(pair)
    return {
        kind: (len(pairs), spearman(*zip(*pairs, strict=True)))
        for kind, pairs in kinds.items()
        if len(pairs) > 2
    }


def main() -> None:
    """Measure the operators that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="operators whose names begin so; no file"
    )
    parser.add_argument("--turns", type=int, default=TURNS)
    args = parser.parse_args()
    report: dict[str, Any] = conditions(host(1), 1) | {
        "benchmark": "operators",
        **provenance("operators"),
        "threads": [1],
        "turns": args.turns,
        "clock": "time on the processors",
    }
    rows: dict[str, dict[str, Any]] = {}
    for name in CASES:
        if args.only and not name.startswith(tuple(args.only)):
            continue
        progress(name)
        row = measure(name, args.turns)
        progress()
        rows[name] = {"1": row}
        times = "  ".join(f"{p} {row['median_s'][p] * 1e6:9.2f} us" for p in (OURS, TVM))
        print(f"{name:36} {row['kind']:14} {times}   {row['ours/best']['median']:.3f}", flush=True)
    medians = [row["1"]["ours/best"]["median"] for row in rows.values()]
    report["geometric_mean_of_ours/best"] = {
        "operators": {"1": math.exp(statistics.mean(map(math.log, medians)))}
    }
    report["rank_correlation_of_predictions"] = correlations(rows)
    for kind, (count, value) in report["rank_correlation_of_predictions"].items():
        print(f"{kind}: predicted and measured times of {count} have rank correlation {value:.3f}")
    report["models"] = rows
    if not args.only:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
