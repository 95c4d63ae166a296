"""Print what the latency model predicts beside what was published, and our kernels beside floors.

    python benchmarks/neuron_ladder.py                   prints both tables
    python benchmarks/neuron_ladder.py --write           also renews the committed tables and chart
                                                         (the chart needs matplotlib)

Nothing here was measured by this project: every number of ours is a prediction, always the same one
on every machine. The published figures and what is known of that run are in
`fuse_epilogue.schedules.neuron.ladder`; the model's constants are the documentation's, the same for
all kernels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fuse_epilogue import __version__, workloads
from fuse_epilogue.neuron import emit, load
from fuse_epilogue.neuron.prediction import Prediction
from fuse_epilogue.schedules.neuron import DepthwiseConv1d
from fuse_epilogue.schedules.neuron.ladder import PUBLISHED, UNEXPLAINED, C, F, N, W, schedule

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BY_HAND = HERE.parent / "tests" / "neuron_by_hand.py"

REMARKS = """\
Step 4 is not explained. Its text has 131,072 vector instructions; at the documented minimum of 64
cycles each they take 7.5 ms, and 5.602 ms leave 48 cycles. The compiler of that run must have
merged some; how many was not published. With four sums in one instruction, as in step 5, the
prediction is {merged:.3f} ms ({merged_error:+.1%}); something else would then take the rest, for
instance blocks that wait for the store of the one before."""

#: Milliseconds: the least of max(engines, DMA) over five ways to divide each tile's work among the
#: engines, at the documented costs and without any overhead. A kernel that does not treat all tiles
#: alike, such as the one written by hand, may need less.
FLOORS = {
    ("trn1", "float32"): 0.247,
    ("trn1", "bfloat16"): 0.123,
    ("trn2", "float32"): 0.205,
    ("trn2", "bfloat16"): 0.091,
}


def ladder(step: int, merged: int | None = None) -> Prediction:
    """Predict a kernel of the study."""
    return emit(schedule(step, merged)).predict("trn1")


def ours(finite: bool, machine: str, dtype: str) -> tuple[Prediction, str]:
    """Predict our rule's kernel, with bias; also return what the rule chose."""
    func = workloads.depthwise_conv1d(N, C, W, F, dtype=dtype)
    choice = DepthwiseConv1d(finite).choose(func, machine)
    kernel = emit(choice.schedule)
    kernel.check(machine)
    return kernel.predict(machine), choice.form


def by_hand(machine: str, dtype: str) -> Prediction:
    """Predict a kernel written by hand, with bias: it does one tile of four in another way."""
    inputs = {"x": ((N, C, W), dtype), "weight": ((C, F), dtype), "bias": ((C,), dtype)}
    return load(BY_HAND.read_text(encoding="utf-8"), inputs=inputs).predict(machine)


def print_ladder(predictions: list[Prediction]) -> None:
    """Print predicted beside published."""
    print(f"{'step':4} {'':44} {'predicted':>9} {'published':>9} {'error':>7}   multiplies  sums")
    for step, told in enumerate(PUBLISHED):
        mine = predictions[step]
        error = mine.latency_ms / told.latency_ms - 1
        counts = f"{mine.counts['tensor_tensor']:10}  {mine.counts['tensor_reduce']}"
        note = "   not explained" if step in UNEXPLAINED else ""
        print(
            f"{step:4} {told.what:44} {mine.latency_ms:9.3f} {told.latency_ms:9.3f}"
            f" {error:+7.1%}   {counts}{note}"
        )
    print("\nits instructions, in ms       predicted  published")
    for step, told in enumerate(PUBLISHED):
        pairs = {"tensor_tensor": told.multiplies_ms, "tensor_reduce": told.sums_ms}
        for op, ms in pairs.items():
            if ms is not None:
                print(f"step {step} {op:22} {predictions[step].op_ms[op]:9.3f}  {ms:9.2f}")


def kernels() -> dict[str, dict[str, tuple[float, str]]]:
    """Predict our kernels: milliseconds and what was chosen, by kind and machine."""
    rows: dict[str, dict[str, tuple[float, str]]] = {
        "any data": {},
        "finite data": {},
        "by hand": {},
    }
    for machine, dtype in FLOORS:
        for kind, finite in (("any data", False), ("finite data", True)):
            told, form = ours(finite, machine, dtype)
            rows[kind][f"{machine} {dtype}"] = (told.latency_ms, form)
        rows["by hand"][f"{machine} {dtype}"] = (by_hand(machine, dtype).latency_ms, "")
    return rows


def print_kernels(rows: dict[str, dict[str, tuple[float, str]]]) -> None:
    """Print our kernels beside the floors."""
    print("\npredicted ms (times the floor)")
    print(f"{'':12}" + "".join(f"{m + ' ' + d:>18}" for m, d in FLOORS))
    for kind, cells in rows.items():
        texts = []
        for (machine, dtype), floor in FLOORS.items():
            ms, _ = cells[f"{machine} {dtype}"]
            texts.append(f"{ms:10.4f} ({ms / floor:.2f})")
        print(f"{kind:12}" + "".join(f"{text:>18}" for text in texts))
    print(f"{'floor':12}" + "".join(f"{floor:18.3f}" for floor in FLOORS.values()))


def draw(predictions: list[Prediction], path: Path) -> None:
    """Draw the ladder, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "neuron_ladder"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.4))
    for shift, label, colour in ((-0.2, "predicted", "#1f6f8b"), (0.2, "published", "#c9a227")):
        for place, told in enumerate(PUBLISHED):
            ms = predictions[place].latency_ms if label == "predicted" else told.latency_ms
            only = label if place == 0 else None
            axes.bar(place + shift, ms, width=0.38, color=colour, label=only)
            axes.text(place + shift, ms * 1.04, f"{ms:.3f}", ha="center", fontsize=7)
    names = [f"step {i}{'*' if i in UNEXPLAINED else ''}" for i in range(len(PUBLISHED))]
    axes.set_xticks(range(len(names)), names)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_title("depthwise conv1d on trn1 (* not explained by the model)", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write(
    predictions: list[Prediction], merged: float, rows: dict[str, dict[str, tuple[float, str]]]
) -> None:
    """Write the tables and the chart."""
    steps = [
        {
            "step": step,
            "what": told.what,
            "predicted_ms": round(predictions[step].latency_ms, 4),
            "published_ms": told.latency_ms,
            "explained": step not in UNEXPLAINED,
            "counts": predictions[step].counts,
        }
        for step, told in enumerate(PUBLISHED)
    ]
    found = {
        "what": "predictions of the latency model, nothing was measured",
        "version": __version__,
        "ladder": steps,
        "step 4 with four sums merged, predicted_ms": round(merged, 4),
        "kernels": {
            kind: {
                at: {
                    "predicted_ms": round(ms, 4),
                    "floor_ms": FLOORS[tuple(at.split())],
                    **({"schedule": form} if form else {}),
                }
                for at, (ms, form) in cells.items()
            }
            for kind, cells in rows.items()
        },
    }
    text = json.dumps(found, indent=1) + "\n"
    (RESULTS / "neuron_ladder.json").write_text(text, encoding="utf-8")
    draw(predictions, RESULTS / "neuron_ladder.svg")


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew the tables and the chart")
    arguments = parser.parse_args()
    predictions = [ladder(step) for step in range(len(PUBLISHED))]
    print_ladder(predictions)
    merged = ladder(4, merged=4).latency_ms
    error = merged / PUBLISHED[4].latency_ms - 1
    print("\n" + REMARKS.format(merged=merged, merged_error=error))
    rows = kernels()
    print_kernels(rows)
    if arguments.write:
        write(predictions, merged, rows)


if __name__ == "__main__":
    main()
