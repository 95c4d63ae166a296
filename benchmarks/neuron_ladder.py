"""Print what the latency model predicts beside what was published, and our kernels beside floors.

    python benchmarks/neuron_ladder.py                   prints both tables
    python benchmarks/neuron_ladder.py --write           also renews the committed tables and chart
                                                         (the chart needs matplotlib)
    python benchmarks/neuron_ladder.py --chart           draws the chart of the committed tables

Nothing here was measured by this project: every number of ours is a prediction, always the same one
on every machine. The published figures and what is known of that run are in
`fuse_epilogue.kernels.trainium.ladder`; the model's constants are the documentation's, the same for
all kernels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from provenance import provenance

from fuse_epilogue import __version__, workloads
from fuse_epilogue.kernels.trainium.ladder import PUBLISHED, UNEXPLAINED, C, F, N, W, schedule
from fuse_epilogue.neuron import emit, load
from fuse_epilogue.neuron.prediction import Prediction
from fuse_epilogue.schedules.neuron import DepthwiseConv1d

HERE = Path(__file__).resolve().parent
TABLES = HERE / "results" / "neuron_ladder.json"
BY_HAND = HERE.parent / "tests" / "neuron_by_hand.py"

REMARKS = """\
Step 4 is not explained. Its text has 131,072 vector instructions; at the documented minimum of 64
cycles each they take 7.5 ms, and 5.602 ms leave 48 cycles. The compiler of that run must have
merged some; how many was not published. With two sums in one instruction the prediction is
{two:.3f} ms, with four, as in step 5, {four:.3f} ms: what was published lies between them."""

#: Milliseconds: the least of max(engines, DMA) over five ways to divide each tile's work among the
#: engines, at the documented costs and without any overhead; DMA at 272 GB/s on trn1 and 368 on
#: trn2, which the DMA bandwidth guide says that long transfers sustain. The theoretical rate is 435
#: GB/s on both, and a published elementwise kernel sustains 294 on trn1. A kernel that does not
#: treat all tiles alike, such as the one written by hand, may need less.
FLOORS = {
    ("trn1", "float32"): 0.247,
    ("trn1", "bfloat16"): 0.123,
    ("trn2", "float32"): 0.205,
    ("trn2", "bfloat16"): 0.091,
}


#: Of the chart's axis, in milliseconds.
TICKS = (0.5, 1, 2, 5, 10)


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
    for step, published in enumerate(PUBLISHED):
        mine = predictions[step]
        error = mine.latency_ms / published.latency_ms - 1
        counts = f"{mine.counts['tensor_tensor']:10}  {mine.counts['tensor_reduce']}"
        note = "   not explained" if step in UNEXPLAINED else ""
        print(
            f"{step:4} {published.what:44} {mine.latency_ms:9.3f} {published.latency_ms:9.3f}"
            f" {error:+7.1%}   {counts}{note}"
        )
    print("\nits instructions, in ms       predicted  published")
    for step, published in enumerate(PUBLISHED):
        pairs = {"tensor_tensor": published.multiplies_ms, "tensor_reduce": published.sums_ms}
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
            predicted, form = ours(finite, machine, dtype)
            rows[kind][f"{machine} {dtype}"] = (predicted.latency_ms, form)
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


def draw(steps: list[dict[str, Any]], path: Path) -> None:
    """Draw the ladder, as it stands in the tables: dots, as bars have no length on this axis."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "neuron_ladder"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.6, 3.6))
    kinds = (("predicted", -0.17, "o", "#1f6f8b"), ("published", 0.17, "D", "#c9a227"))
    for kind, shift, mark, colour in kinds:
        values = [row[f"{kind}_ms"] for row in steps]
        places = [place + shift for place in range(len(steps))]
        axes.plot(values, places, mark, color=colour, markersize=5, label=kind)
        for ms, place in zip(values, places, strict=True):
            axes.text(ms * 1.06, place, f"{ms:.3f}", va="center", fontsize=8)
    names = [f"{row['step']}{'' if row['explained'] else '*'}: {row['what']}" for row in steps]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(0.3, 14)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], fontsize=8)
    axes.minorticks_off()
    axes.grid(axis="x", color="#dddddd", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("ms, on a logarithmic axis (less is better)", fontsize=8)
    axes.set_title("depthwise conv1d on trn1 (* not explained by the model)", fontsize=10)
    axes.legend(fontsize=8, loc="lower center")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write(
    predictions: list[Prediction],
    merged: dict[int, float],
    rows: dict[str, dict[str, tuple[float, str]]],
) -> None:
    """Write the tables and the chart."""
    steps = [
        {
            "step": step,
            "what": published.what,
            "predicted_ms": round(predictions[step].latency_ms, 4),
            "range_ms": [round(ms, 4) for ms in predictions[step].range_ms],
            "published_ms": published.latency_ms,
            "explained": step not in UNEXPLAINED,
            "counts": predictions[step].counts,
        }
        for step, published in enumerate(PUBLISHED)
    ]
    found = {
        "what": "predictions of the latency model, nothing was measured",
        "version": __version__,
        **provenance("neuron_ladder"),
        "ladder": steps,
        "step_4_by_merged_sums": {str(sums): round(ms, 4) for sums, ms in merged.items()},
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
    TABLES.write_text(text, encoding="utf-8")
    draw(steps, TABLES.with_suffix(".svg"))


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew the tables and the chart")
    parser.add_argument("--chart", action="store_true", help="only draw the tables that are there")
    arguments = parser.parse_args()
    if arguments.chart:
        draw(json.loads(TABLES.read_text(encoding="utf-8"))["ladder"], TABLES.with_suffix(".svg"))
        return
    predictions = [ladder(step) for step in range(len(PUBLISHED))]
    print_ladder(predictions)
    merged = {sums: ladder(4, merged=sums).latency_ms for sums in (2, 4)}
    print("\n" + REMARKS.format(two=merged[2], four=merged[4]))
    rows = kernels()
    print_kernels(rows)
    if arguments.write:
        write(predictions, merged, rows)


if __name__ == "__main__":
    main()
