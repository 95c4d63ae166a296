"""Draw what `conv1d_cpu.py` has measured: ours and the best peer, in times of memcpy.

    python benchmarks/conv1d_chart.py          draws results/conv1d_cpu.svg from the JSON beside it
    python benchmarks/conv1d_chart.py FILE     draws FILE.svg from FILE.json

It needs matplotlib, which comes with `pip install -e '.[bench]'`. The same figures give the same
file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot

RESULTS = Path(__file__).resolve().parent / "results" / "conv1d_cpu.json"

LIMIT = 6.0  # longer bars are cut off there; their figures stand beside them
OURS_COLOUR, PEER_COLOUR, TARGET_COLOUR = "#1f6f8b", "#c9a227", "#444444"
HEIGHT = 0.38  # of a bar, of the 1 that a case has
INCHES = 0.5  # for a case

Row = dict[str, Any]


def title(row: Row) -> str:
    """Name a case in two lines."""
    n, c, w, f = row["shape"]
    kind = f"{row['dtype']}, {row['activation']}, {row['state']}"
    return f"N={n} C={c} W={w} F={f}\n{kind}"


def bars(axes: Any, places: Sequence[float], ratios: Sequence[Row], colour: str, name: str) -> None:
    """Draw a bar from 0 to each median, a line from quartile to quartile, and the figure."""
    medians = [spread["median"] for spread in ratios]
    shown = [min(median, LIMIT) for median in medians]
    axes.barh(places, shown, height=HEIGHT, color=colour, label=name)
    for place, median, spread in zip(places, medians, ratios, strict=True):
        end = min(median, LIMIT)
        upper = min(spread["upper_quartile"], LIMIT)
        if median < LIMIT:
            axes.plot([spread["lower_quartile"], upper], [place, place], color="black", lw=0.8)
        more = " →" if median > LIMIT else ""
        axes.text(max(end, upper) + 0.08, place, f"{median:.2f}{more}", va="center", fontsize=7)


def panel(axes: Any, rows: Sequence[Row], threads: int) -> None:
    """Draw all rows of a number of threads."""
    places = list(range(len(rows)))
    ours = [row["ratio_to_memcpy"]["ours"] for row in rows]
    bars(axes, [place - HEIGHT / 2 for place in places], ours, OURS_COLOUR, "ours")
    rivals = [(place, row) for place, row in zip(places, rows, strict=True) if row["best_peer"]]
    spreads = [row["ratio_to_memcpy"][row["best_peer"]] for _, row in rivals]
    beside = [place + HEIGHT / 2 for place, _ in rivals]
    bars(axes, beside, spreads, PEER_COLOUR, "best peer (named in its bar)")
    for place, (_, row) in zip(beside, rivals, strict=True):
        behind = {"facecolor": PEER_COLOUR, "edgecolor": "none", "pad": 0.4}
        axes.text(0.06, place, row["best_peer"], va="center", fontsize=5.5, bbox=behind)
    axes.axvline(1.0, color=TARGET_COLOUR, lw=1.0, ls="--", label="memcpy")
    axes.set_title("1 thread" if threads == 1 else f"{threads} threads", fontsize=10)
    axes.set_xlim(0, LIMIT + 0.8)
    axes.set_xlabel("time / time of memcpy (less is better)", fontsize=8)
    axes.set_yticks(places, [title(row) for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(report: Row, output: Path) -> None:
    """Draw a panel for each number of threads, side by side."""
    counts = list(dict.fromkeys(row["threads"] for row in report["results"]))
    groups = [[row for row in report["results"] if row["threads"] == count] for count in counts]
    most = max(len(rows) for rows in groups)
    size = (6.2 * len(groups), INCHES * most + 1.6)
    figure, panels = pyplot.subplots(1, len(groups), figsize=size, squeeze=False)
    for axes, rows, count in zip(panels[0], groups, counts, strict=True):
        panel(axes, rows, count)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(f"Depthwise conv1d on the CPU ({report['machine']['cpu']})", fontsize=11)
    figure.tight_layout(rect=(0, 0.6 / size[1], 1, 1))
    figure.savefig(output, metadata={"Date": None})


def main() -> None:
    """Read the figures, draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", default=RESULTS, help="JSON to read")
    args = parser.parse_args()
    if not args.file.exists():
        raise SystemExit(f"{args.file.name} is not there: benchmarks/conv1d_cpu.py writes it")
    matplotlib.rcParams["svg.hashsalt"] = "conv1d"  # names within the file, otherwise at random
    output = args.file.with_suffix(".svg")
    draw(json.loads(args.file.read_text()), output)
    print(f"The chart is in {output.name}.")


if __name__ == "__main__":
    main()
