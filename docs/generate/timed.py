"""Charts and tables of times: ours beside those of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import charts
from .numbers import NONE, ratio, seconds
from .rst import code, prose, table, text, title

Data = Mapping[str, Any]


def convolutions(data: Data) -> Iterator[str]:
    """Yield the times of depthwise convolutions."""
    for threads in data["threads"]:
        rows = [row for row in data["results"] if row["threads"] == threads]
        yield title(f"On {threads} thread{'s' if threads > 1 else ''}", 1)
        yield table(
            (
                *("layer", "type", "data", "ours", "memcpy", "arithmetic", "ours / bound"),
                *("best other", "best other / ours"),
            ),
            [
                (
                    text(f"{row['case']} {'×'.join(map(str, row['shape']))}"),
                    row["dtype"],
                    row["state"],
                    seconds(row["median_s"]["ours"]),
                    seconds(row["bound_s"]["memcpy"]),
                    seconds(row["bound_s"]["arithmetic"]),
                    ratio(row["ratio_to_bound"]["ours"]),
                    text(row["best_peer"] or NONE),
                    ratio(row["ratio_to_ours"].get(row["best_peer"])),
                )
                for row in rows
            ],
        )
    yield title("Where it misses its aim", 1)
    yield """
The aim has two parts: each layer takes at most 1.1 of the time of its bound, and nothing else is
faster than ours at any layer.
"""
    yield "".join(f"- {prose(each)}\n" for each in data["missed"]) or "Nowhere.\n"


def streams(data: Data) -> Iterator[str]:
    """Yield the times of updates of streams and of gradients."""
    for threads in data["threads"]:
        rows = [row for row in data["results"] if row["threads"] == threads]
        yield title(f"On {threads} thread{'s' if threads > 1 else ''}", 1)
        yield charts.ratios(
            "ours / memcpy",
            {
                f"{row['case']} {'×'.join(map(str, row['shape']))}, {row['dtype']}": (
                    row["ours_to"].get("memcpy")
                )
                for row in rows
            },
        )
        yield table(
            ("what", "type", "ours", "ours / memcpy", "ours / torch", "ours / torch.compile"),
            [
                (
                    text(f"{row['case']} {'×'.join(map(str, row['shape']))}"),
                    row["dtype"],
                    seconds(row["median_s"]["ours"]),
                    *(ratio(row["ours_to"].get(n)) for n in ("memcpy", "torch", "torch.compile")),
                )
                for row in rows
            ],
        )


def fusions(data: Data) -> Iterator[str]:
    """Yield the times of fused and unfused loops."""
    for family in data["results"].values():
        yield title(family["title"], 1)
        yield f"Loops: {code(family['loops'])}\n"
        yield charts.ratios(
            "unfused / ours",
            {
                f"{row['epilogue']}, {row['size']}": row["ratio_to_ours"].get("unfused")
                for row in family["programs"]
            },
        )
        yield table(
            ("epilogue", "size", "unfused", "by hand", "ours", "unfused / ours", "by hand / ours"),
            [
                (
                    text(row["epilogue"]),
                    text(row["size"]),
                    *(
                        seconds(row["median_s"].get(name))
                        for name in ("unfused", "by hand", "ours")
                    ),
                    *(ratio(row["ratio_to_ours"].get(name)) for name in ("unfused", "by hand")),
                )
                for row in family["programs"]
            ],
        )


def primitive(data: Data) -> Iterator[str]:
    """Yield the times of the primitive."""
    for name, result in data["results"].items():
        yield title(name.replace("_", " "), 1)
        medians = result["median_s"]
        yield charts.ratios(
            "ours / tvm",
            {
                f"{layers} layer{'s' if layers != '1' else ''}": spread
                for layers, spread in result["ratio_ours_to_tvm"].items()
            },
        )
        yield table(
            ("layers", *medians, "ours / tvm"),
            [
                (
                    layers,
                    *(seconds(times[layers]) for times in medians.values()),
                    ratio(result["ratio_ours_to_tvm"][layers]),
                )
                for layers in medians["ours"]
            ],
        )


def pass_time(data: Data) -> Iterator[str]:
    """Yield the times of the pass."""
    yield charts.ratios(
        "pass / FuseTIR",
        {f"{row['functions']:,} functions": row["pass/FuseTIR"] for row in data["sizes"].values()},
    )
    yield table(
        ("functions", "reductions", "fused", "pass", "FuseTIR", "pass / FuseTIR", "pass again"),
        [
            (
                f"{row['functions']:,}",
                f"{row['reductions']:,}",
                f"{row['fused']:,}",
                *(seconds(row["median_s"][name]) for name in ("pass", "FuseTIR")),
                ratio(row["pass/FuseTIR"]),
                seconds(row["median_s"]["again"]),
            )
            for row in data["sizes"].values()
        ],
    )


def models(data: Data) -> Iterator[str]:
    """Yield the times of models before and after the pass."""
    measured = {name: row for name, row in data["models"].items() if "median_s" in row}
    yield charts.ratios(
        "before / after", {name: row["before/after"] for name, row in measured.items()}
    )
    yield table(
        ("model", "fused", "bytes saved", "before", "after", "before / after", "by chance"),
        [
            (
                text(name),
                f"{row['report']['fused']} of {row['report']['found']}",
                f"{row['report']['bytes_saved']:,}",
                seconds(row["median_s"]["before"]),
                seconds(row["median_s"]["after"]),
                ratio(row["before/after"]),
                ratio(row.get("chance")),
            )
            for name, row in measured.items()
        ],
    )
    yield title("Not fused", 1)
    left = [
        f"- {text(name)}: {text(each)}\n"
        for name, row in measured.items()
        for each in (*row["report"]["not_fused"], *row["report"]["fused_in_part"])
    ]
    yield "".join(left) or "Nothing.\n"


def peers(data: Data) -> Iterator[str]:
    """Yield the times of models or layers beside those of others."""
    for threads in map(str, data["threads"]):
        found = {
            name: by_threads[threads]
            for name, by_threads in data["models"].items()
            if "median_s" in by_threads.get(threads, {})
        }
        parties = list(dict.fromkeys(party for row in found.values() for party in row["median_s"]))
        yield title(f"On {threads} thread{'s' if threads != '1' else ''}", 1)
        yield charts.ratios(
            "ours / best other", {name: row["ours/best"] for name, row in found.items()}
        )
        yield table(
            ("model", *parties, "best other", "ours / best other", "difference"),
            [
                (
                    text(name),
                    *(seconds(row["median_s"].get(party)) for party in parties),
                    text(row["best"]),
                    ratio(row["ours/best"]),
                    f"{max(facts.get('difference', 0.0) for facts in row['parties'].values()):.1e}",
                )
                for name, row in found.items()
            ],
        )
        yield "".join(
            f"Geometric mean of {which} / best other, {family}: {means[threads]:.2f}.\n\n"
            for which in ("ours", "winograd")
            for family, means in data.get(f"geometric_mean_of_{which}/best", {}).items()
            if threads in means
        )


def tuned(data: Data) -> Iterator[str]:
    """Yield the gain of tuned tasks."""
    yield charts.ratios("gain", {name: task["gain"] for name, task in data["results"].items()})
    summary = data["summary"]
    yield table(
        ("tasks", "best is fused", "mean gain", "least gain", "over 2 % faster", "over 2 % slower"),
        [
            (
                summary["tasks"],
                summary["best_is_fused"],
                *(f"{summary[key]:.3f}" for key in ("geometric_mean_gain", "worst_gain")),
                *(len(summary[f"{key}_by_more_than_2_percent"]) for key in ("better", "worse")),
            )
        ],
    )
    yield title("Each task", 1)
    yield table(
        (
            "task",
            "trials",
            "best without",
            "best with the rule",
            "gain",
            "best is fused",
            "same schedule",
            "best fused / best unfused",
        ),
        [
            (
                text(name),
                task["trials"]["with the rule"],
                *(
                    seconds(task["microseconds"][key] * 1e-6)
                    for key in ("without", "with the rule")
                ),
                ratio(task["gain"]),
                *("yes" if task[key] else "no" for key in ("fused", "same_schedule")),
                ratio(task["fusing"]),
            )
            for name, task in data["results"].items()
        ],
    )


def cascades(data: Data) -> Iterator[str]:
    """Yield the times of attention, softmax and norms beside those of the parties."""
    for threads in map(str, data["threads"]):
        yield title(f"On {threads} thread{'s' if threads != '1' else ''}", 1)
        found = {name: by_threads[threads] for name, by_threads in data["cases"].items()}
        yield charts.ratios(
            "ours / best of the others", {name: row["ours/best"] for name, row in found.items()}
        )
        parties = list(dict.fromkeys(each for row in found.values() for each in row["median_s"]))
        rows = []
        for name, row in found.items():
            times = (row["median_s"].get(party) for party in parties)
            cells = ("" if each is None else seconds(each) for each in times)
            rows.append((text(name), *cells, ratio(row["ours/best"])))
        yield table(("case", *map(text, parties), "ours / best of the others"), rows)
