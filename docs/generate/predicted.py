"""Tables of predictions beside what was measured, published or counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import charts
from .numbers import NONE, seconds
from .rst import prose, table, text, title

Data = Mapping[str, Any]


def published(data: Data) -> Iterator[str]:
    """Yield predicted latencies beside published ones."""
    yield title("How far predictions are from what was published", 1)
    yield table(
        (
            "kernels",
            "latencies",
            "within the range",
            "error, median",
            "within 15 %",
            "within 30 %",
            "of the middle of the range: median",
            "within 15 %",
            "within 30 %",
        ),
        [
            (
                text(family),
                row["latencies"],
                row["inside_of_the_range"],
                *(
                    cell
                    for part in ("prediction", "middle_of_the_range")
                    for cell in (
                        f"{row[part]['median_error']:.1%}",
                        row[part]["within_15_percent"],
                        row[part]["within_30_percent"],
                    )
                ),
            )
            for family, row in data["judged"].items()
        ],
    )
    yield title("Each kernel", 1)
    yield table(
        ("kernel", "what", "machine", "published", "predicted", "ratio", "range"),
        [
            (
                text(row["family"]),
                prose(row["what"]),
                row["machine"],
                f"{row['published_ms']:.3f} ms",
                f"{row['predicted_ms']:.3f} ms",
                f"{row['predicted_ms'] / row['published_ms']:.2f}",
                "{:.3f} to {:.3f} ms".format(*row["range_ms"]),
            )
            for row in data["kernels"]
        ],
    )
    yield title("Where the latencies are from", 1)
    yield table(("kernels", "source"), [(text(k), prose(v)) for k, v in data["sources"].items()])


def planned(data: Data) -> Iterator[str]:
    """Yield planned kernels beside floors and public kernels."""
    yield charts.ratios(
        "predicted / floor",
        {
            ", ".join((row["what"], row["machine"], *row["options"])): (
                row["predicted_ms"] / row["floor_ms"]
            )
            for row in data["kernels"]
        },
    )
    yield table(
        (
            "function",
            "machine",
            "permitted",
            "predicted",
            "range",
            "floor",
            "of",
            "ratio",
            "public kernel",
            "predicted",
            "ours / public",
        ),
        [
            (
                prose(row["what"]),
                row["machine"],
                text(", ".join(row["options"])) if row["options"] else NONE,
                seconds(1e-3 * row["predicted_ms"]),
                " to ".join(seconds(1e-3 * ms) for ms in row["range_ms"]),
                seconds(1e-3 * row["floor_ms"]),
                row["floor_of"],
                f"{row['predicted_ms'] / row['floor_ms']:.2f}",
                *_public(row),
            )
            for row in data["kernels"]
        ],
    )
    yield title("Where the public kernels are from", 1)
    yield table(
        ("repository", "commit"), [(text(k), text(v[:10])) for k, v in data["library"].items()]
    )


def _public(row: Data) -> tuple[str, ...]:
    public = row["public"]
    if public is None:
        return NONE, NONE, NONE
    ratio = row["predicted_ms"] / public["predicted_ms"]
    predicted = seconds(1e-3 * public["predicted_ms"])
    return prose(public["kernel"]), predicted, f"{ratio:.2f}"


def ladder(data: Data) -> Iterator[str]:
    """Yield the steps of the ladder."""
    yield title("Predicted beside published", 1)
    yield table(
        ("step", "what", "predicted", "range", "published", "predicted / published", "explained"),
        [
            (
                row["step"],
                prose(row["what"]),
                f"{row['predicted_ms']:.3f} ms",
                "{:.3f} to {:.3f} ms".format(*row["range_ms"]),
                f"{row['published_ms']:.3f} ms",
                f"{row['predicted_ms'] / row['published_ms']:.3f}",
                "yes" if row["explained"] else "no",
            )
            for row in data["ladder"]
        ],
    )
    yield title("Step 4, by how many sums one instruction makes", 1)
    yield table(
        ("sums in one instruction", "predicted"),
        [(sums, f"{ms:.3f} ms") for sums, ms in data["step_4_by_merged_sums"].items()],
    )
    yield title("Kernels of this package", 1)
    yield table(
        ("kernel", "machine and type", "predicted", "least of five", "ratio", "schedule"),
        [
            (
                kind,
                where,
                f"{row['predicted_ms']:.3f} ms",
                f"{row['floor_ms']:.3f} ms",
                f"{row['predicted_ms'] / row['floor_ms']:.2f}",
                prose(row.get("schedule", "")),
            )
            for kind, by_machine in data["kernels"].items()
            for where, row in by_machine.items()
        ],
    )


def plans(data: Data) -> Iterator[str]:
    """Yield costs of plans beside measured times."""
    losses = {case["name"]: _times(case) for case in data["cases"]}
    yield charts.ratios(
        "plan / best measured",
        {name: times["plan"] / min(times.values()) for name, times in losses.items()},
    )
    yield title("Cost against the clock", 1)
    yield table(
        (
            "chosen by",
            "rank correlation",
            "within each",
            "within 5 %",
            "median loss",
            "worst",
        ),
        [
            (
                text(name),
                _share(row.get("spearman")),
                _share(row.get("spearman_within_median")),
                f"{row['within_5_percent']} of {row['workloads']}",
                f"{row['regret_median']:.1%}",
                f"{row['regret_worst']:.1%}",
            )
            for name, row in data["judged"].items()
        ],
    )
    yield title("Each workload, measured", 1)
    plans = [name for name in _times(data["cases"][0]) if name.startswith("plan")]
    yield table(
        ("workload", *plans, "best measured", "plan / best", "best unfused", "TVM as it is"),
        [_plan(case, plans) for case in data["cases"]],
    )


def registers(data: Data) -> Iterator[str]:
    """Yield the predicted and the real registers of kernels."""
    judged = data["judged"]
    apart = judged["given_less_predicted"]
    yield table(
        ("points", "rank correlation", "within each", "given - predicted: 10%", "median", "90%"),
        [
            (
                f"{judged['points']:,}",
                f"{judged['spearman']:.2f}",
                f"{judged['spearman_within_median']:.2f}",
                *(f"{apart[at]:.0f}" for at in ("10%", "median", "90%")),
            )
        ],
    )
    yield title("Plans", 1)
    yield table(
        ("function", "threads of a block", "predicted", "given", "bytes spilled"),
        [
            (text(row["function"]), *(row[key] for key in _REGISTERS))
            for row in data["points"]
            if row["what"] == "plan"
        ],
    )


def planning(data: Data) -> Iterator[str]:
    """Yield the times of planning."""
    for target, found in data["planning"].items():
        yield title(f"For {target}", 1)
        yield charts.times(
            "time of planning", {case["name"]: case["seconds"] for case in found["cases"]}
        )
        yield table(
            ("function", "points", "evaluated", "in full", "time"),
            [
                (
                    text(case["name"]),
                    f"{case['points']:,}",
                    f"{case['evaluated']:,}",
                    "yes" if case["exhaustive"] else "no",
                    seconds(case["seconds"]),
                )
                for case in found["cases"]
            ],
        )
    yield title("Plans for Trainium beside its rule", 1)
    yield table(
        ("machine and type", "data", "plan", "rule", "plan / rule"),
        [
            (
                f"{row['machine']} {row['dtype']}",
                "finite" if row["finite"] else "any",
                *(f"{row[f'{which}_predicted_us']:.1f} us" for which in ("plan", "by_hand")),
                f"{row['plan_to_by_hand']:.3f}",
            )
            for row in data["trainium"]
        ],
    )


def kinds(data: Data) -> Iterator[str]:
    """Yield figures of predicted and measured times of kernels of all kinds."""
    yield charts.ratios(
        "chosen / best", {name: row["chosen/best"] for name, row in data["workloads"].items()}
    )
    yield (
        f"Rank correlation over all {data['points']} points: {data['rank_correlation']:.3f}. The "
        f"chosen way is within 5 % of the best for {data['chosen_within_5_percent']} of "
        f"{len(data['workloads'])}.\n\n"
    )
    yield table(
        (
            "workload",
            "kind",
            "ways",
            *(f"chosen / {other}" for other in ("best", "TVM", "unfused")),
            "rank correlation",
        ),
        [
            (
                text(name),
                text(row["kind"]),
                len(row["measured_s"]),
                f"{row['chosen/best']:.2f}",
                _share(row["chosen/TVM"]),
                _share(row.get("chosen/unfused")),
                "-" if row["rank_correlation"] is None else f"{row['rank_correlation']:.2f}",
            )
            for name, row in data["workloads"].items()
        ],
    )


def _plan(case: Data, plans: Iterable[str]) -> tuple[str, ...]:
    times = _times(case)
    best = min(times.values())
    return (
        text(case["name"]),
        *(seconds(times.get(name)) for name in plans),
        seconds(best),
        f"{times['plan'] / best:.2f}",
        seconds(times.get("best none")),
        seconds(case.get("tvm_as_is")),
    )


def _times(case: Data) -> dict[str, float]:
    """Return seconds by what was timed: of the last round, if there was one.

    The others ran few turns, and of some forty the fastest is one that was lucky.
    """
    last = {point["what"]: point["last"] for point in case["points"] if "last" in point}
    return last or {point["what"]: point["seconds"] for point in case["points"]}


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


_REGISTERS = ("threads", "predicted", "given", "spilled_bytes")
