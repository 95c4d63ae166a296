"""Attention, softmax and layer norms of float32 beside torch and ONNX Runtime, on one thread.

Each case is computed by

- ours: the one kernel that `fuse_epilogue.compile` makes of the torch function;
- torch: the function itself, for attention `scaled_dot_product_attention`;
- ONNX Runtime: its operator; for attention also the products and the softmax, one by one.

    python benchmarks/cascades.py                     two minutes; writes results/cascades.json
    python benchmarks/cascades.py --only softmax      a part; writes nothing

What is several kernels of ours, such as torch's RMS norm, is not among the cases.

Results are compared before anything is timed. A sample is the mean of as many calls as take 10 ms;
parties take turns. On two threads the parties' pools would wait for each other in one process, as
`models.py` explains: whole models are measured there. Finished cases are kept in
build/cascades_benchmark.jsonl: the same command at the same commit resumes where it was stopped.

What to read: `ours/best` is the median of the ratios within the turns; below 1 ours is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import tvm
from fusion import conditions
from models import versions
from onnx import TensorProto, helper
from primitive import in_turns, progress, ratio, to_json
from provenance import provenance
from torch.nn import functional
from tvm import tirx

from fuse_epilogue.models import import_model
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule, schedules_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cascades.json"
JOURNAL = ROOT / "build" / "cascades_benchmark.jsonl"
OURS, TORCH, ONNX, ONE_BY_ONE = "ours", "torch", "ONNX Runtime", "ONNX Runtime, one by one"
TOLERANCE = 1e-5  # of the largest result
TURNS, SAMPLE_S = 15, 0.01
THREADS = (1,)
OPSET = 23


@dataclass(frozen=True)
class Case:
    """A function, its operands, and what computes it in ONNX.

    Attributes
    ----------
    function : callable
        Of torch.
    shapes : tuple[tuple[int, ...], ...]
        Shapes of its operands.
    graphs : dict
        By the party, nodes of ONNX that read "x0", "x1", ... and write "y".
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    graphs: dict[str, list[Any]]


class Module(torch.nn.Module):
    """A function as a module, which torch exports."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Any) -> Any:
        """Compute the function."""
        return self.function(*operands)


def attention(heads: int, queries: int, keys: int, size: int, groups: int, causal: bool) -> Case:
    """Attention of as many heads, which share keys and values by groups."""
    shapes = ((1, heads, queries, size), (1, groups, keys, size), (1, groups, keys, size))

    def function(q: Any, k: Any, v: Any) -> Any:
        grouped = groups != heads
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=grouped
        )

    whole = [helper.make_node("Attention", ["x0", "x1", "x2"], ["y"], is_causal=int(causal))]
    graphs = {ONNX: whole}
    if groups == heads and not causal:
        factor = helper.make_tensor("factor", TensorProto.FLOAT, [], [1 / math.sqrt(size)])
        graphs[ONE_BY_ONE] = [
            helper.make_node("Constant", [], ["c"], value=factor),
            helper.make_node("Transpose", ["x1"], ["k"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["x0", "k"], ["s"]),
            helper.make_node("Mul", ["s", "c"], ["t"]),
            helper.make_node("Softmax", ["t"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "x2"], ["y"]),
        ]
    return Case(function, shapes, graphs)


def rows(kind: str, count: int, size: int) -> Case:
    """A softmax or a layer norm of rows."""
    whole, weight = (count, size), (size,)
    if kind == "softmax":
        node = helper.make_node("Softmax", ["x0"], ["y"], axis=-1)
        return Case(lambda x: torch.softmax(x, -1), (whole,), {ONNX: [node]})
    node = helper.make_node("LayerNormalization", ["x0", "x1", "x2"], ["y"], axis=-1)
    return Case(
        lambda x, w, b: functional.layer_norm(x, weight, w, b),
        (whole, weight, weight),
        {ONNX: [node]},
    )


CASES: dict[str, Callable[[], Case]] = {
    "attention 12x128x64": lambda: attention(12, 128, 128, 64, 12, False),
    "attention 12x197x64": lambda: attention(12, 197, 197, 64, 12, False),
    "attention 12x512x64": lambda: attention(12, 512, 512, 64, 12, False),
    "attention 8x2048x64": lambda: attention(8, 2048, 2048, 64, 8, False),
    "attention 8/2x128x64": lambda: attention(8, 128, 128, 64, 2, False),
    "causal attention 12x512x64": lambda: attention(12, 512, 512, 64, 12, True),
    "one query 8x4096x64": lambda: attention(8, 1, 4096, 64, 8, False),
    **{
        f"{kind} {count}x{size}": lambda kind=kind, count=count, size=size: rows(kind, count, size)
        for kind in ("softmax", "layer norm")
        for count, size in ((128, 64), (128, 768), (128, 4096), (16, 65536))
    },
}

#: Returns the result as an array, and a function that makes the given number of calls.
Party = tuple[np.ndarray, Callable[[int], None]]


def of_us(case: Case, operands: list[Any], threads: int) -> Party:
    """Return what the kernel computes, and a function that runs it."""
    mod = import_model(Module(case.function).eval(), tuple(operands))
    done = scheduled(mod, ScheduleModule(host(threads), threads=threads))
    kinds = [each.kind for each in schedules_of(done) or ()]
    if len(kinds) != 1 or kinds == ["default"]:
        raise RuntimeError(f"it is not one kernel: {', '.join(kinds)}")
    ((var, func),) = [
        (var, func) for var, func in done.functions.items() if isinstance(func, tirx.PrimFunc)
    ]
    by_name = {param.name: array for param, array in zip(mod["main"].params, operands, strict=True)}
    names = [arg.name for arg in _call(done["main"], var).args[1]]
    arrays = [tvm.runtime.tensor(by_name[name].numpy()) for name in names]
    out = tvm.runtime.tensor(np.empty([int(size) for size in func.params[-1].shape], "float32"))
    run = tvm.compile(func.with_attr("global_symbol", "main"), host(threads))["main"]

    def timed(count: int) -> None:
        for _ in range(count):
            run(*arrays, out)

    timed(1)
    return out.numpy(), timed


def _call(main: Any, var: Any) -> Any:
    """Return the call of a function in a function of Relax."""
    for block in main.body.blocks:
        for binding in block.bindings:
            arguments = list(getattr(binding.value, "args", ()))
            if arguments and arguments[0].same_as(var):
                return binding.value
    raise RuntimeError("nothing calls the kernel")


def of_torch(case: Case, operands: list[Any]) -> Party:
    """Return what torch computes, and a function that runs it."""

    def timed(count: int) -> None:
        for _ in range(count):
            case.function(*operands)

    return case.function(*operands).numpy(), timed


def of_onnx(nodes: list[Any], case: Case, operands: list[Any], threads: int) -> Party:
    """Return what ONNX Runtime computes, and a function that runs it."""
    inputs = [
        helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, shape)
        for number, shape in enumerate(case.shapes)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, case.shapes[0])
    graph = helper.make_graph(nodes, "case", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result = np.empty(case.shapes[0], "float32")
    binding = session.io_binding()
    for number, operand in enumerate(operands):
        binding.bind_cpu_input(f"x{number}", operand.numpy())
    binding.bind_output("y", "cpu", 0, "float32", result.shape, result.ctypes.data)

    def timed(count: int) -> None:
        for _ in range(count):
            session.run_with_iobinding(binding)

    timed(1)
    return result, timed


def measure(case: Case, threads: int, turns: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Compare the results of the parties, and time them in turns."""
    torch.manual_seed(0)
    operands = [torch.randn(shape) for shape in case.shapes]
    expected = case.function(*(each.double() for each in operands)).numpy()
    made = {OURS: of_us(case, operands, threads), TORCH: of_torch(case, operands)}
    made |= {name: of_onnx(nodes, case, operands, threads) for name, nodes in case.graphs.items()}
    differences = {
        name: float(np.abs(result - expected).max() / np.abs(expected).max())
        for name, (result, _) in made.items()
    }
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{name} is {difference:.1e} off")

    def sample(name: str, count: int) -> list[float]:
        begin = clock()
        made[name][1](count)
        return [(clock() - begin) / count]

    counts = {}
    for name in made:
        once = min(sample(name, 1)[0] for _ in range(3))
        counts[name] = max(1, min(2000, round(SAMPLE_S / max(once, 1e-7))))
    samples = in_turns({name: lambda name=name: sample(name, counts[name]) for name in made}, turns)
    medians = {name: statistics.median(each) for name, each in samples.items()}
    best = min((name for name in made if name != OURS), key=medians.__getitem__)
    return {
        "differences": differences,
        "median_s": medians,
        "best": best,
        "ours/best": ratio(samples, OURS, best),
        "samples_s": {p: [float(f"{t:.4g}") for t in times] for p, times in samples.items()},
    }


def child(threads: int, names: list[str], settings: dict[str, Any]) -> None:
    """Measure cases in this process, and append each to the journal."""
    torch.set_num_threads(threads)
    clock = time.process_time if settings["clock"] == "cpu" else time.perf_counter
    JOURNAL.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        progress(f"{name}, {threads}")
        with torch.no_grad():
            row = measure(CASES[name](), threads, settings["turns"], clock)
        progress()
        times = "  ".join(f"{p} {each * 1e6:8.1f} us" for p, each in row["median_s"].items())
        median = row["ours/best"]["median"]
        print(f"{name:27} {threads}  {times}   {median:.3f} of {row['best']}", flush=True)
        with JOURNAL.open("a") as journal:
            entry = {"settings": settings, "case": name, "threads": threads, "row": row}
            journal.write(json.dumps(entry) + "\n")


def journal(settings: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the cases that were finished with the same settings."""
    found = {}
    for line in JOURNAL.read_text().splitlines() if JOURNAL.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was killed while it wrote
            continue
        if entry["settings"] == settings:
            found[entry["case"], entry["threads"]] = entry["row"]
    return found


def main() -> None:
    """Measure the cases that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="cases that begin so")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    source = provenance("cascades")
    settings = {"commit": source["commit"], "turns": args.turns, "clock": args.clock}
    wanted = [name for name in CASES if not args.only or name.startswith(tuple(args.only))]
    done = journal(settings)
    if args.child is not None:
        child(args.child, [n for n in wanted if (n, args.child) not in done], settings)
        return
    report: dict[str, Any] = conditions(host(1), 1) | {
        "benchmark": "cascades",
        **source,
        "threads": list(THREADS),
        "turns": args.turns,
        "clock": args.clock,
    }
    report["versions"] |= versions()
    for threads in THREADS:
        again = [sys.executable, __file__, *sys.argv[1:], "--child", str(threads)]
        environment = os.environ | {"TVM_NUM_THREADS": str(threads)}
        subprocess.run(again, env=environment, check=True)
    done = journal(settings)
    report["cases"] = {
        name: {str(threads): done[name, threads] for threads in THREADS} for name in wanted
    }
    for family in ("attention", "softmax", "layer norm"):
        for threads in THREADS:
            found = [
                done[name, threads]["ours/best"]["median"]
                for name in wanted
                if name.startswith(family)
            ]
            if found:
                mean = math.exp(statistics.mean(map(math.log, found)))
                print(f"geometric mean of ours/best, {family}, {threads}: {mean:.3f}")
    if not args.only:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
