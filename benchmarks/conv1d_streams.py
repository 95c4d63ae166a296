"""Depthwise conv1d on streams and its gradients on the CPU: ours beside memcpy and torch.

- update: one step of 64 streams of 5120 channels, 4 taps and SiLU, in three types; beside torch, as
  transformers writes it, torch.compile, and a memcpy of as many bytes as a step reads and writes;
- backward: the gradients of x, weight and bias, in float32, where ours computes the sums again that
  the activation needs; beside the backward pass alone of torch's autograd, which has kept them, and
  a memcpy of as many bytes as x, dy and dx have.

    python benchmarks/conv1d_streams.py            four minutes; writes results/conv1d_streams.json
    python benchmarks/conv1d_streams.py --quick    few samples; writes nothing
    python benchmarks/conv1d_streams.py --only update    a part; writes nothing

Results are compared with torch's first. Versions take turns, all are called from Python, and their
memory is kept, as in `conv1d_cpu.py`. What to read: `ours/memcpy`, at most 1.1 for an update, and
`ours/torch`, at most 0.8 for gradients.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import conv1d_cpu  # before numpy and torch: sets variables of their environment
import numpy as np
import tvm
from conv1d_cpu_cases import Case
from conv1d_cpu_peers import Version, prepare, tensor, torch, versions_of_packages
from conv1d_cpu_report import quartiles
from conv1d_cpu_tvm import CALL, MEMCPY, OURS, memcpy, nothing, use_threads_of_pool
from fusion import Effort, Others, conditions, host, sample, use_threads
from primitive import progress, ratio, to_json
from provenance import provenance

from fuse_epilogue import schedules, workloads

RESULTS = Path(__file__).resolve().parent / "results" / "conv1d_streams.json"
TORCH, COMPILED = "torch", "torch.compile"
UPDATE, BACKWARD = "update", "backward"
AT_MOST = {UPDATE: (MEMCPY, 1.1), BACKWARD: (TORCH, 0.8)}
#: Of the largest value of a result.
TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}

CASES = {
    **{
        f"{UPDATE}-{dtype}": Case(UPDATE, 64, 5120, 1, 4, dtype, activation="silu")
        for dtype in TOLERANCE
    },
    **{
        f"{BACKWARD}-{name}": Case(BACKWARD, *shape, causal=True, activation=activation)
        for name, shape, activation in (
            ("main", (8, 512, 2048, 3), "relu"),
            ("l2", (1, 64, 1024, 3), "relu"),
            ("mamba", (1, 5120, 4096, 4), "silu"),
            ("short", (16, 256, 128, 7), "relu"),
            ("patches", (4, 768, 197, 3), "relu"),
            ("audio", (2, 96, 16000, 16), "relu"),
        )
    },
}
Results = list[np.ndarray]


def compiled(func: Any, threads: int) -> Any:
    """Compile a function for this processor."""
    with tvm.transform.PassContext(opt_level=3):
        return tvm.compile(func, target=host(threads))["main"]


def of_tvm(main: Any, given: Sequence[Any], results: Sequence[int]) -> Version:
    """Return a version that calls a compiled function; its results are among its arguments."""
    return Version(lambda: main(*given), lambda: [given[place].numpy() for place in results])


def drawn(case: Case, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Draw arrays of the type of a case."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, "float32").astype(case.dtype) for shape in shapes]


def copies(case: Case, threads: int) -> dict[str, Version]:
    """Return memcpy of half the bytes that are moved, which it reads and writes, and a call."""
    n, c, w = (case.n, case.c, case.f) if case.name == UPDATE else (case.n, case.c * 3 // 2, case.w)
    half = Case(case.name, n, c, w, 1, case.dtype)
    shapes = (n, c, w), (c, 1), (c,), (n, c, w)
    given = [tvm.runtime.tensor(array) for array in drawn(half, *shapes)]
    return {
        CALL: of_tvm(compiled(nothing(half), threads), given, ()),
        MEMCPY: of_tvm(compiled(memcpy(half, threads), threads), given, ()),
    }


def update(case: Case, threads: int) -> dict[str, Version]:
    """Return the versions of one step; the results are y and the state."""
    n, c, f = case.n, case.c, case.f
    x, weight, bias, state = drawn(case, (n, c), (c, f), (c,), (n, c, f - 1))
    func = workloads.depthwise_conv1d_update(n, c, f, dtype=case.dtype, activation=case.activation)
    given = [tvm.runtime.tensor(each) for each in (x, weight, bias, state, np.zeros_like(x))]
    ours = compiled(schedules.apply(func, host(threads)), threads)

    def step(x: Any, weight: Any, bias: Any, state: Any) -> Any:
        columns = torch.cat([state, x[:, :, None]], dim=2)
        state.copy_(columns[:, :, 1:])
        return torch.nn.functional.silu((columns * weight).sum(dim=2) + bias)

    def peer(function: Callable[..., Any]) -> Version:
        tensors = [tensor(each) for each in (x, weight, bias, state)]

        def result() -> Results:
            y = function(*tensors)
            return [each.to(torch.float32).numpy() for each in (y, tensors[3])]

        return Version(lambda: function(*tensors), result)

    def first() -> Results:
        ours(*given)
        return [given[4].numpy(), given[3].numpy()]

    return {
        OURS: Version(lambda: ours(*given), first),
        TORCH: peer(step),
        COMPILED: peer(torch.compile(step, dynamic=False)),
    }


def backward(case: Case, threads: int) -> dict[str, Version]:
    """Return the versions of the gradients of x, weight and bias."""
    n, c, w, f = case.n, case.c, case.w, case.f
    x, weight, bias, dy = drawn(case, (n, c, w), (c, f), (c,), (n, c, w))
    func = workloads.depthwise_conv1d_backward(n, c, w, f, activation=case.activation)
    results = [np.zeros_like(each) for each in (x, weight, bias)]
    given = [tvm.runtime.tensor(each) for each in (x, weight, bias, dy, *results)]
    ours = compiled(schedules.apply(func, host(threads)), threads)

    activation = {"relu": torch.relu, "silu": torch.nn.functional.silu}[case.activation]
    with torch.enable_grad():
        leaves = [tensor(each).requires_grad_() for each in (x, weight, bias)]
        sums = torch.nn.functional.conv1d(
            leaves[0], leaves[1][:, None], leaves[2], padding=f - 1, groups=c
        )
        y = activation(sums[..., :w])
    slopes = tensor(dy)

    def gradients() -> Any:
        return torch.autograd.grad(y, leaves, slopes, retain_graph=True)

    def first() -> Results:
        ours(*given)
        return [each.numpy() for each in given[4:]]

    return {
        OURS: Version(lambda: ours(*given), first),
        TORCH: Version(gradients, lambda: [each.numpy() for each in gradients()]),
    }


def check(name: str, case: Case, built: dict[str, Version]) -> None:
    """Make sure that all versions compute what torch does, on the first run of each."""
    expected = built[TORCH].result()
    for label in built.keys() - {TORCH}:
        for found, right in zip(built[label].result(), expected, strict=True):
            off = np.abs(found.astype("float32") - right).max()
            if not off <= TOLERANCE[case.dtype] * np.abs(right).max():
                raise AssertionError(f"{name}: {label} is {off} off")


def measure(name: str, threads: int, effort: Effort) -> dict[str, Any]:
    """Time the versions of a case in turns."""
    case = CASES[name]
    use_threads_of_pool(threads)
    prepare(threads)
    progress(f"{name}, {threads} threads")
    built = (update if case.name == UPDATE else backward)(case, threads)
    check(name, case, built)
    built |= copies(case, threads)
    others = Others()
    timed = {label: conv1d_cpu.warm(version) for label, version in built.items()}
    samples = sample(timed, effort, f"{name}, {threads} threads")
    progress()
    net = {
        label: [value - call for value, call in zip(values, samples[CALL], strict=True)]
        for label, values in samples.items()
    }
    peers = [label for label in (TORCH, COMPILED) if label in samples]
    # As in conv1d_cpu.py: ratios to memcpy are without the time of a call, others with it.
    return {
        "case": name,
        "shape": [case.n, case.c, case.w, case.f],
        "dtype": case.dtype,
        "activation": case.activation,
        "threads": threads,
        "median_s": {label: statistics.median(values) for label, values in samples.items()},
        "quartiles_s": {label: quartiles(values) for label, values in samples.items()},
        "ours_to": {MEMCPY: ratio(net, OURS, MEMCPY)}
        | {label: ratio(samples, OURS, label) for label in peers},
        "others_share_of_processors": others.share(),
        "samples_s": {label: [round(v, 9) for v in values] for label, values in samples.items()},
    }


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Write a line for each row, and those that miss their target."""
    yield f"{'case':18}{'threads':>8}{'memcpy us':>11}{'ours us':>10}  ours over each of the others"
    for row in rows:
        medians = row["median_s"]
        over = ", ".join(f"{label} {r['median']:.2f}" for label, r in row["ours_to"].items())
        yield (
            f"{row['case']:18}{row['threads']:8}{medians[MEMCPY] * 1e6:11.1f}"
            f"{medians[OURS] * 1e6:10.1f}  {over}"
        )
    for row in rows:
        base, most = AT_MOST[row["case"].partition("-")[0]]
        if row["ours_to"][base]["median"] > most:
            found = row["ours_to"][base]["median"]
            threads = row["threads"]
            yield f"Missed: {row['case']}, {threads} threads: {found:.2f} of {base}, not {most}"


def main() -> None:
    """Measure, print the table, write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--only", metavar="NAME", help="cases whose names begin so")
    parser.add_argument("--threads", type=int, action="append", metavar="NUMBER")
    args = parser.parse_args()
    if torch is None:
        raise SystemExit("torch is not installed: install the extra 'bench'")
    counts = args.threads or ([1, 2] if (os.cpu_count() or 1) > 1 else [1])
    names = [name for name in CASES if name.startswith(args.only or "")]
    conv1d_cpu.keep_memory()
    use_threads(max(counts))
    report = conditions(host(max(counts)), max(counts))
    report |= {"benchmark": "conv1d_streams", **provenance("conv1d_streams"), "threads": counts}
    report["versions"] |= versions_of_packages()
    effort = conv1d_cpu.QUICK if args.quick else conv1d_cpu.FULL
    rows = [measure(name, threads, effort) for name in names for threads in counts]
    print(*table(rows), sep="\n")
    if not (args.quick or args.only):
        RESULTS.write_text(to_json(report | {"results": rows}))
        print(f"The samples are in {RESULTS.name}.")


if __name__ == "__main__":
    main()
