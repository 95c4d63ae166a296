"""Print what the latency model predicts beside what was published, and our kernels beside floors.

    python benchmarks/neuron_ladder.py                 prints both tables
    python benchmarks/neuron_ladder.py --chart FILE    also draws the ladder (needs matplotlib)

Nothing here was measured by this project. The published figures are those of "How we made AWS
Trainium 17x faster (for conv1d)", Autocomp, UC Berkeley SLICE lab, November 2025: one NeuronCore of
a trn1.2xlarge, the slowest of 10 runs after 2 warm-ups; depthwise conv1d, N = 8, C = 512, W = 2048,
F = 3, one column of zeros on each side, float32, no bias.

The kernels are the texts in tests/neuron_ladder. The model's constants are the documentation's, the
same for all steps. What is known of that run's compiler is written out in the texts: in step 5 four
sums in one instruction, in step 6 one multiply and one sum for 128 columns. Three things are our
reading of it: zeros come from the GpSimd engine; the zeros that the study's text puts into output
tiles, all of which are overwritten, are left out (on the vector engine they would take 0.06 ms, and
the published 0.461 ms has no room for both fills of step 6); in steps 0 to 2, 24 of the 32 tiles
are spilled.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from fuse_epilogue.neuron import load
from fuse_epilogue.neuron.prediction import Prediction

KERNELS = Path(__file__).resolve().parents[1] / "tests" / "neuron_ladder"
N, C, W, F = 8, 512, 2048, 3


@dataclass(frozen=True)
class Published:
    """A step of the study: milliseconds, and where it tells them those of its two instructions."""

    name: str
    latency_ms: float
    tensor_tensor_ms: float | None = None
    tensor_reduce_ms: float | None = None


PUBLISHED = {
    "step0": Published("baseline: all loaded, computed, stored", 8.007),
    "step1": Published("filter's index out of the column loop", 8.007),
    "step2": Published("no index helpers at the store", 8.010),
    "step3": Published("one loop nest: load, compute, store a tile", 7.934),
    "step4": Published("512 columns gather in PSUM", 5.602),
    "step5": Published("channels outside; filter in PSUM", 4.955, 3.84, 1.03),
    "step6": Published("128 columns in one instruction", 0.461, 0.2, 0.2),
}

#: The model does not explain these: see `REMARKS`.
UNEXPLAINED = ("step4",)

REMARKS = """\
Step 4 is not explained. Its text has 131,072 vector instructions; at the documented minimum of 64
cycles each they take 7.5 ms, and 5.602 ms leave 48 cycles. The compiler of that run must have
merged some; how many was not published. With four sums in one instruction, as in step 5, the
prediction is {merged:.3f} ms ({merged_error:+.1%}); something else would then take the rest, for
instance blocks that wait for the store of the one before."""

#: Milliseconds: the least of max(engines, DMA) over the structures A to E, each at its documented
#: cost and without any overhead.
FLOORS = {
    ("trn1", "float32"): 0.247,
    ("trn1", "bfloat16"): 0.123,
    ("trn2", "float32"): 0.205,
    ("trn2", "bfloat16"): 0.091,
}


def ladder(name: str, machine: str = "trn1") -> Prediction:
    """Predict a kernel of the study."""
    inputs = {"x": ((N, C, W), "float32"), "weight": ((C, F), "float32")}
    text = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
    return load(text, inputs=inputs).predict(machine)


def structure(letter: str, machine: str, dtype: str) -> Prediction:
    """Predict one of our kernels, with bias."""
    inputs = {"x": ((N, C, W), dtype), "weight": ((C, F), dtype), "bias": ((C,), dtype)}
    text = (KERNELS / f"structure_{letter}.py").read_text(encoding="utf-8")
    return load(text, inputs=inputs).predict(machine)


def print_ladder(predictions: dict[str, Prediction]) -> None:
    """Print predicted beside published."""
    print(f"{'':6} {'':44} {'predicted':>9} {'published':>9} {'error':>7}   multiplies  sums")
    for name, told in PUBLISHED.items():
        ours = predictions[name]
        error = ours.latency_ms / told.latency_ms - 1
        counts = f"{ours.counts['tensor_tensor']:10}  {ours.counts['tensor_reduce']}"
        note = "   not explained" if name in UNEXPLAINED else ""
        print(
            f"{name:6} {told.name:44} {ours.latency_ms:9.3f} {told.latency_ms:9.3f}"
            f" {error:+7.1%}   {counts}{note}"
        )
    print("\nits instructions, in ms       predicted  published")
    for name, told in PUBLISHED.items():
        pairs = {"tensor_tensor": told.tensor_tensor_ms, "tensor_reduce": told.tensor_reduce_ms}
        for op, ms in pairs.items():
            if ms is not None:
                print(f"{name} {op:22} {predictions[name].op_ms[op]:9.3f}  {ms:9.2f}")


def print_structures() -> None:
    """Print our structures beside the floors."""
    print("\npredicted ms (times the floor)")
    print(f"{'structure':10}" + "".join(f"{m + ' ' + d:>18}" for m, d in FLOORS))
    for letter in "abcdef":
        cells = []
        for (machine, dtype), floor in FLOORS.items():
            ms = structure(letter, machine, dtype).latency_ms
            cells.append(f"{ms:10.4f} ({ms / floor:.2f})")
        print(f"{letter.upper():10}" + "".join(f"{cell:>18}" for cell in cells))
    print(f"{'floor':10}" + "".join(f"{floor:18.3f}" for floor in FLOORS.values()))


def draw(predictions: dict[str, Prediction], path: str) -> None:
    """Draw the ladder, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "neuron_ladder"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.4))
    for shift, label, colour in ((-0.2, "predicted", "#1f6f8b"), (0.2, "published", "#c9a227")):
        for place, (name, told) in enumerate(PUBLISHED.items()):
            ms = predictions[name].latency_ms if label == "predicted" else told.latency_ms
            only = label if place == 0 else None
            axes.bar(place + shift, ms, width=0.38, color=colour, label=only)
            axes.text(place + shift, ms * 1.04, f"{ms:.3f}", ha="center", fontsize=7)
    names = [f"{name}*" if name in UNEXPLAINED else name for name in PUBLISHED]
    axes.set_xticks(range(len(names)), names)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_title("depthwise conv1d on trn1 (* not explained by the model)", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chart", metavar="FILE", help="draw the ladder as SVG")
    arguments = parser.parse_args()
    predictions = {name: ladder(name) for name in PUBLISHED}
    print_ladder(predictions)
    merged = ladder("step4_merged").latency_ms
    error = merged / PUBLISHED["step4"].latency_ms - 1
    print("\n" + REMARKS.format(merged=merged, merged_error=error))
    print_structures()
    if arguments.chart:
        draw(predictions, arguments.chart)


if __name__ == "__main__":
    main()
