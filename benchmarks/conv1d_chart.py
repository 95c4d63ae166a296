"""Draw what `conv1d_cpu.py` has measured: ours and the best peer, in times of the bound.

    python benchmarks/conv1d_chart.py          draws results/conv1d_cpu.svg from the JSON beside it
    python benchmarks/conv1d_chart.py FILE     draws FILE.svg from FILE.json

It needs matplotlib, which comes with `pip install --group bench`. The same figures give the same
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
INCHES = 0.42  # for a case
WIDTH = 7.6  # inches: as it is in a column of the documentation, without being made smaller
WITHIN = 2.8  # a bar is long enough for its name up to there

Row = dict[str, Any]


def title(row: Row) -> str:
    """Name a case in two lines."""
    n, c, w, f = row["shape"]
    kind = f"{row['dtype']}, {row['activation']}, {row['state']}"
    return f"N={n} C={c} W={w} F={f}\n{kind}"


def bars(
    axes: Any, places: Sequence[float], ratios: Sequence[Row], names: Sequence[str], kind: Row
) -> None:
    """Draw a bar from 0 to each median, a line from quartile to quartile, the figure and a name.

    The name stands in a bar that no line of the quartiles cuts there, otherwise behind the figure.
    """
    medians = [spread["median"] for spread in ratios]
    axes.barh(places, [min(median, LIMIT) for median in medians], height=HEIGHT, **kind)
    for place, median, spread, name in zip(places, medians, ratios, names, strict=True):
        lower, upper = (min(spread[f"{which}_quartile"], LIMIT) for which in ("lower", "upper"))
        if median < LIMIT:
            axes.plot([lower, upper], [place, place], color="black", lw=0.8)
        else:
            lower = LIMIT
        figure = f"{median:.2f}{' →' if median > LIMIT else ''}"
        if lower > WITHIN:
            axes.text(0.06, place, name, va="center", fontsize=7)
        elif name:
            figure += f"  {name}"
        end = max(min(median, LIMIT), upper) + 0.06
        # In front of the line of the bound.
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
        axes.text(end, place, figure, va="center", fontsize=7.5, bbox=behind, zorder=3)


def panel(axes: Any, rows: Sequence[Row], threads: int) -> None:
    """Draw all rows of a number of threads."""
    label = "bound: the longer one of memcpy and arithmetic"
    axes.axvline(1.0, color=TARGET_COLOUR, lw=1.0, ls="--", label=label, zorder=0.5)
    places = list(range(len(rows)))
    ours = [row["ratio_to_bound"]["ours"] for row in rows]
    above = [place - HEIGHT / 2 for place in places]
    bars(axes, above, ours, [""] * len(rows), {"color": OURS_COLOUR, "label": "ours"})
    rivals = [(place, row) for place, row in zip(places, rows, strict=True) if row["best_peer"]]
    spreads = [row["ratio_to_bound"][row["best_peer"]] for _, row in rivals]
    beside = [place + HEIGHT / 2 for place, _ in rivals]
    peers = [row["best_peer"] for _, row in rivals]
    bars(axes, beside, spreads, peers, {"color": PEER_COLOUR, "label": "best peer, with its name"})
    axes.set_title("1 thread" if threads == 1 else f"{threads} threads", fontsize=10)
    axes.set_xlim(0, LIMIT + 0.8)
    axes.set_xlabel("time / bound (less is better)", fontsize=8)
    axes.set_yticks(places, [title(row) for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(report: Row, output: Path) -> None:
    """Draw a panel for each number of threads, one below the other."""
    counts = list(dict.fromkeys(row["threads"] for row in report["results"]))
    groups = [[row for row in report["results"] if row["threads"] == count] for count in counts]
    size = (WIDTH, sum(INCHES * len(rows) + 0.8 for rows in groups) + 0.8)
    shares = [len(rows) for rows in groups]
    figure, panels = pyplot.subplots(
        len(groups), 1, figsize=size, squeeze=False, height_ratios=shares
    )
    for axes, rows, count in zip(panels[:, 0], groups, counts, strict=True):
        panel(axes, rows, count)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(f"Depthwise conv1d on the CPU ({report['machine']['cpu']})", fontsize=11)
    figure.tight_layout(rect=(0, 0.4 / size[1], 1, 1 - 0.1 / size[1]), h_pad=1.6)
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
