"""Print what the latency model predicts beside every published latency there is.

    python benchmarks/neuron_published.py                prints the table and the statistics
    python benchmarks/neuron_published.py --write        also renews the committed file and chart
                                                         (the chart needs matplotlib)
    python benchmarks/neuron_published.py --chart        draws the chart of the committed file

Nothing here was measured by this project. The latencies were published by others; the kernels are
this project's own texts with the structures of theirs (`published_products`), and the seven
schedules of the study of conv1d. The model has one set of constants for a machine, each from a
document, and none is fitted to any of these kernels.

Each kernel repeats what it does for a part of its result. It is predicted with one and with two of
these parts and continued in proportion: the whole of the slowest has 130,000 instructions, and the
two ways differ by less than 1 %.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provenance import provenance
from published_products import MOVING, P, Product, by_step, hoisted, in_blocks

from fuse_epilogue import __version__
from fuse_epilogue.kernels.trainium import ladder
from fuse_epilogue.neuron import Kernel, emit, load

HERE = Path(__file__).resolve().parent
TABLES = HERE / "results" / "neuron_published.json"

#: Sizes of all products: AWS's tutorials and the search of Autocomp use the same.
LARGE = Product(4096, 8192, 8192, "bfloat16")
WIDE = replace(LARGE, dtype="float32")

FAMILIES = {
    "tutorial 2024": (
        "trn1",
        "AWS Neuron documentation v2.20 to v2.23, tutorial on matrix multiplication: on a "
        "trn1.32xlarge, bfloat16",
    ),
    "tutorial 2025": (
        "trn2",
        "AWS Neuron documentation v2.27, guide to kernel optimisation: on trn2, float32; active "
        "time of an engine divided by its share, from the pictures of profiles",
    ),
    "search 2025": (
        "trn1",
        "Autocomp (UC Berkeley), examples/trn-tutorial/1_gemm_trace.py: 99th percentile on a "
        "trn1.2xlarge, bfloat16",
    ),
    "ladder 2025": (
        "trn1",
        "Autocomp (UC Berkeley), study of depthwise conv1d: the slowest of 10 runs on a "
        "trn1.2xlarge, float32",
    ),
}


@dataclass(frozen=True)
class Case:
    """A kernel whose latency was published.

    Attributes
    ----------
    family, what : str
        Whose it is, and what it does.
    published_ms : float
    build : Callable[[int], Kernel]
        A kernel with some of the parts that repeat.
    parts : int
        How many there are.
    """

    family: str
    what: str
    published_ms: float
    build: Callable[[int], Kernel]
    parts: int

    @property
    def machine(self) -> str:
        """Name of the machine it ran on."""
        return FAMILIES[self.family][0]


def _steps(family: str, what: str, ms: float, m: int, n: int, *fused: int) -> Case:
    """Return a product that loads operands at each step; a part is a column of two blocks."""
    rows, columns = P * m, MOVING * n

    def build(parts: int) -> Kernel:
        return by_step(replace(LARGE, m=rows, n=2 * columns * parts), m, n, *fused)

    return Case(family, what, ms, build, LARGE.m // rows * LARGE.n // (2 * columns))


def _hoisted(family: str, what: str, ms: float, product: Product, m: int, n: int) -> Case:
    """Return a product that loads all of k first; a part is a row of blocks."""

    def build(parts: int) -> Kernel:
        return hoisted(replace(product, m=P * m * parts), m, n)

    return Case(family, what, ms, build, product.m // (P * m))


def _blocks(family: str, what: str, ms: float, product: Product) -> Case:
    """Return the blocked product of AWS's tutorials; a part is a column of blocks."""

    def build(parts: int) -> Kernel:
        return in_blocks(replace(product, n=2 * MOVING * parts), 16, 2, 8)

    return Case(family, what, ms, build, product.n // (2 * MOVING))


def _of_ladder(step: int) -> Case:
    """Return a step of the study of conv1d; a part is an image, or half of all in the short one."""
    published, own = ladder.PUBLISHED[step], 4 if step == 6 else 1
    return Case(
        "ladder 2025",
        published.what,
        published.latency_ms,
        lambda parts: images(step, own * parts),
        ladder.N // own,
    )


def images(step: int, count: int) -> Kernel:
    """Return a step of the study of conv1d for some images."""
    kernel = emit(ladder.schedule(step))
    text = re.sub(rf"\brange\({ladder.N}\)", f"range({count})", kernel.source)
    text = text.replace(f"({ladder.N}, {ladder.C},", f"({count}, {ladder.C},")
    x = (count, ladder.C, ladder.W), "float32"
    return load(text, {**kernel.inputs, "x": x})


CASES = (
    _steps("tutorial 2024", "operands loaded at each step", 51.80, 1, 1),
    _hoisted("tutorial 2024", "operands loaded for each tile of sums", 42.96, LARGE, 1, 1),
    _hoisted("tutorial 2024", "for 2 x 2 tiles of sums", 22.07, LARGE, 2, 2),
    _blocks("tutorial 2024", "blocks of 16 x 2 x 8 tiles, sums in SBUF", 6.97, LARGE),
    Case(
        "tutorial 2025",
        "operands loaded at each step",
        39.90,
        lambda parts: by_step(replace(WIDE, m=P, n=2 * MOVING * parts), 1, 1),
        WIDE.m // P * WIDE.n // (2 * MOVING),
    ),
    _hoisted("tutorial 2025", "operands loaded for each tile of sums", 28.20, WIDE, 1, 1),
    _blocks("tutorial 2025", "blocks of 16 x 2 x 8 tiles, sums in SBUF", 28.30, WIDE),
    _steps("search 2025", "operands loaded at each step", 20.99, 1, 1),
    _steps("search 2025", "blocks of 1 x 2 tiles", 28.68, 1, 2),
    _steps("search 2025", "blocks of 2 x 2 tiles", 11.80, 2, 2),
    _steps("search 2025", "blocks of 4 x 2 tiles", 8.07, 4, 2),
    _steps("search 2025", "the same, pairs of left tiles in one transfer", 7.62, 4, 2, 2),
    _steps("search 2025", "the same, each operand in one transfer", 6.96, 4, 2, 4, 2),
    *map(_of_ladder, range(len(ladder.PUBLISHED))),
)


def predict(case: Case) -> tuple[float, float, float]:
    """Return the predicted latency of a kernel, and the ends of its range, in milliseconds."""
    one, two = (_predicted(case.build(parts), case.machine) for parts in (1, 2))
    latency, least, most = (a + (case.parts - 1) * (b - a) for a, b in zip(one, two, strict=True))
    return latency, least, most


def _predicted(kernel: Kernel, machine: str) -> tuple[float, float, float]:
    predicted = kernel.predict(machine)
    return predicted.latency_ms, *predicted.range_ms


def table() -> list[dict[str, Any]]:
    """Return a row for each published latency."""
    rows = []
    for case in CASES:
        latency, least, most = predict(case)
        rows.append(
            {
                "family": case.family,
                "what": case.what,
                "machine": case.machine,
                "published_ms": case.published_ms,
                "predicted_ms": round(latency, 3),
                "range_ms": [round(least, 3), round(most, 3)],
            }
        )
    return rows


def statistics_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how far predictions are from what was published.

    Parameters
    ----------
    rows : Sequence[dict]
        Of `table`.

    Returns
    -------
    dict
        For the prediction and for the middle of its range: the median of the error without its
        sign, and how many are within 15 and 30 %.
    """
    inside = sum(row["range_ms"][0] <= row["published_ms"] <= row["range_ms"][1] for row in rows)
    found: dict[str, Any] = {"latencies": len(rows), "inside_of_the_range": inside}
    for name, value in (
        ("prediction", lambda row: row["predicted_ms"]),
        ("middle_of_the_range", lambda row: sum(row["range_ms"]) / 2),
    ):
        errors = [abs(value(row) / row["published_ms"] - 1) for row in rows]
        found[name] = {
            "median_error": round(statistics.median(errors), 4),
            "within_15_percent": sum(error <= 0.15 for error in errors),
            "within_30_percent": sum(error <= 0.30 for error in errors),
        }
    return found


def judged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the statistics of all, and of each family."""
    by_family = {
        family: statistics_of([row for row in rows if row["family"] == family])
        for family in FAMILIES
    }
    return {"all": statistics_of(rows), **by_family}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table and the statistics."""
    for row in rows:
        least, most = row["range_ms"]
        published, predicted = row["published_ms"], row["predicted_ms"]
        inside = "" if least <= published <= most else "   outside"
        print(
            f"{row['family']:14} {row['what']:46} {published:7.3f} published {predicted:7.3f}"
            f" predicted ({predicted / published - 1:+6.1%}), {least:.3f} to {most:.3f}{inside}"
        )
    for family, found in judged(rows).items():
        print(f"\n{family}: {found['inside_of_the_range']} of {found['latencies']} in the range")
        for name in ("prediction", "middle_of_the_range"):
            part = found[name]
            print(
                f"  {name.replace('_', ' '):20} error {part['median_error']:.1%} (median), within"
                f" 15 %: {part['within_15_percent']}, within 30 %: {part['within_30_percent']}"
            )


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw ranges, predictions and what was published."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "neuron_published"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.2, 5.4))
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        axes.plot(row["range_ms"], [place, place], color="#9cc3cf", lw=6, solid_capstyle="butt")
    for key, mark, colour in (("predicted_ms", "o", "#1f6f8b"), ("published_ms", "D", "#c9a227")):
        label = key.removesuffix("_ms")
        axes.plot([row[key] for row in rows], places, mark, color=colour, ms=5, label=label)
    names = [f"{row['family']}: {row['what']}" for row in rows]
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
    axes.tick_params(axis="x", labelsize=8)
    axes.minorticks_off()
    axes.grid(axis="x", color="#dddddd", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("ms, on a logarithmic axis (bars: the predicted range)", fontsize=8)
    axes.set_title("published kernels on Trainium", fontsize=10)
    axes.set_xlim(0.35, 110)
    axes.legend(fontsize=8, loc="upper left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew the file and the chart")
    parser.add_argument("--chart", action="store_true", help="only draw the file that is there")
    arguments = parser.parse_args()
    if arguments.chart:
        rows = json.loads(TABLES.read_text(encoding="utf-8"))["kernels"]
        draw(rows, TABLES.with_suffix(".svg"))
        return
    rows = table()
    show(rows)
    if arguments.write:
        found = {
            "what": "predictions of the latency model beside published latencies; nothing was "
            "measured by this project",
            "version": __version__,
            **provenance("neuron_published"),
            "sources": {family: source for family, (_, source) in FAMILIES.items()},
            "judged": judged(rows),
            "kernels": rows,
        }
        TABLES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        draw(rows, TABLES.with_suffix(".svg"))


if __name__ == "__main__":
    main()
