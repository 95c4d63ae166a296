"""Figures of the committed results, as the rows of `sources` write them."""

from __future__ import annotations

import statistics
from typing import Any


def fusion(results: Any, family: str, rival: str, epilogue: str = "+ bias") -> dict[str, float]:  # noqa: ANN401
    """Return the median of rival's time over ours, by the size of the reduction."""
    return {
        program["size"]: program["ratio_to_ours"][rival]["median"]
        for program in results["results"][family]["programs"]
        if program["epilogue"] == epilogue
    }


def span(values: Any) -> tuple[float, float]:  # noqa: ANN401 - an iterable of numbers
    values = list(values)
    return min(values), max(values)


def small(sizes: dict[str, float], largest: int) -> list[float]:
    """Select reductions of at most ``largest`` steps."""
    return [ratio for size, ratio in sizes.items() if int(size.removeprefix("K = ")) <= largest]


def long(sizes: dict[str, float], shortest: int) -> list[float]:
    """Select reductions of at least ``shortest`` steps."""
    return [ratio for size, ratio in sizes.items() if int(size.removeprefix("K = ")) >= shortest]


def tiles_large(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (fusion(results, "tile_large", rival) for rival in ("unfused", "by hand"))
    return (*span(small(unfused, 16)), unfused["K = 64"], *span(by_hand.values()))


def tiles_small(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (fusion(results, "tile_small", rival) for rival in ("unfused", "by hand"))
    return unfused["K = 1"], unfused["K = 16"], by_hand["K = 1"]


def short_reductions(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (fusion(results, "tile_large", rival) for rival in ("unfused", "by hand"))
    return (*span(small(unfused, 16)), *span(small(by_hand, 16)))


def longest_large(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    return tuple(fusion(results, "tile_large", rival)["K = 64"] for rival in ("unfused", "by hand"))


def long_reductions(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    found = (fusion(results, "tile_small", rival) for rival in ("unfused", "by hand"))
    return tuple(end for sizes in found for end in span(long(sizes, 256)))


def by_rows(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (fusion(results, "row", rival) for rival in ("unfused", "by hand"))
    return (*(unfused[f"K = {k}"] for k in (1, 8, 64)), *span(small(by_hand, 16)))


def split(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (fusion(results, "split_large", rival) for rival in ("unfused", "by hand"))
    return unfused["K = 2 x 4"], unfused["K = 8 x 32"], *span(by_hand.values())


def split_relu(results: Any, family: str) -> tuple[float, ...]:  # noqa: ANN401
    rivals = ("unfused", "by hand")
    found = (fusion(results, family, rival, "+ bias + ReLU").values() for rival in rivals)
    return tuple(end for values in found for end in span(values))


def convolution(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    rivals = ("unfused", "by hand")
    return tuple(fusion(results, "conv", rival, "+ bias + ReLU")["F = 4"] for rival in rivals)


def extremes(results: Any, kind: str, other: str) -> tuple[float, float]:  # noqa: ANN401
    """The least and the largest ratio of streams or of gradients to another one's time."""
    rows = [row for row in results["results"] if row["case"].startswith(kind)]
    return span(row["ours_to"][other]["median"] for row in rows)


def conv1d(results: Any, case: str) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return a case in float32 with data that is not flushed, on one thread and on two."""
    rows = (row for row in results["results"] if row["case"] == case and row["state"] == "warm")
    return sorted((r for r in rows if r["dtype"] == "float32"), key=lambda row: row["threads"])


def of_memcpy(results: Any, case: str) -> list[float]:  # noqa: ANN401
    return [row["ratio_to_memcpy"]["ours"]["median"] for row in conv1d(results, case)]


def of_bound(results: Any, dtypes: tuple[str, ...], *cases: str) -> tuple[float, float]:  # noqa: ANN401
    rows = (r for r in results["results"] if r["case"] in cases and r["dtype"] in dtypes)
    return span(row["ratio_to_bound"]["ours"]["median"] for row in rows)


def of_bounds(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    one, sixteen = ("float32",), ("float16", "bfloat16")
    return (
        *of_bound(results, one, "l2", "thin"),
        *of_bound(results, one, "mamba"),
        *of_bound(results, one, "short", "patches"),
        *of_bound(results, one, "audio"),
        *of_bound(results, sixteen, "main"),
        *of_bound(results, sixteen, "mamba"),
        *of_bound(results, ("int8",), "main", "short"),
    )


def best_peer(results: Any) -> list[float]:  # noqa: ANN401
    rows = conv1d(results, "main")
    return [row["ratio_to_ours"][row["best_peer"]]["median"] for row in rows]


def ladder(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    error = {r["step"]: abs(r["predicted_ms"] / r["published_ms"] - 1) for r in results["ladder"]}
    fourth = results["ladder"][4]
    explained = max(part for step, part in error.items() if step != 4)
    return explained * 100, fourth["predicted_ms"], fourth["published_ms"]


def published(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    judged = results["judged"]["all"]
    found = judged["prediction"]
    error = found["median_error"] * 100
    return judged["latencies"], found["within_15_percent"], error, judged["inside_of_the_range"]


def published_ranges(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    found = results["judged"]["all"]["middle_of_the_range"]
    return found["median_error"] * 100, found["within_30_percent"]


def published_twice(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    """The latencies of one text; three others of the first family are predicted at below half."""
    first = [row for row in results["kernels"] if row["family"] == "tutorial 2024"]
    assert sum(row["predicted_ms"] < row["published_ms"] / 2 for row in first) == 3
    texts = {row["family"]: row for row in reversed(results["kernels"])}
    return texts["tutorial 2024"]["published_ms"], texts["search 2025"]["published_ms"]


def published_later(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    """How far any number is from one of two latencies of a text; the errors without a tutorial."""
    one, other = published_twice(results)
    rows = [row for row in results["kernels"] if row["family"] != "tutorial 2024"]
    errors = [abs(row["predicted_ms"] / row["published_ms"] - 1) for row in rows]
    close = sum(error <= 0.15 for error in errors)
    apart = (one - other) / (one + other)
    return apart * 100, close, len(rows), statistics.median(errors) * 100


#: Columns of the table of Trainium: machines and types.
TRAINIUM = tuple((m, d) for m in ("trn1", "trn2") for d in ("float32", "bfloat16"))


def kernels(results: Any, kind: str, what: str = "predicted_ms") -> tuple[float, ...]:  # noqa: ANN401
    kernels = results["kernels"][kind]
    return tuple(kernels[f"{machine} {dtype}"][what] for machine, dtype in TRAINIUM)


def plans_for_trainium(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    plans = {(r["machine"], r["dtype"]): r for r in results["trainium"] if not r["finite"]}
    return tuple(plans[column]["plan_predicted_us"] / 1000 for column in TRAINIUM)


def both(results: Any, key: str) -> tuple[int, int]:  # noqa: ANN401
    return results["ours"][key], results["tvm"][key]


def verdicts(results: Any, kind: str) -> tuple[int, int]:  # noqa: ANN401
    return results["ours"]["verdicts"][kind], results["tvm"]["verdicts"][kind]


def unsound(results: Any) -> tuple[int, ...]:  # noqa: ANN401
    ours, theirs = verdicts(results, "accepted-different")
    judged, judged_theirs = both(results, "programs")
    return judged, ours, theirs, judged_theirs


def per_layers(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    many = results["results"]["many_functions"]
    ratios = [
        (results["results"]["one_function"], ("100", "1")),
        (many, ("10", "100", "1000")),
    ]
    return (
        *(
            each["ratio_ours_to_tvm"][layers]["median"]
            for each, asked in ratios
            for layers in asked
        ),
        many["median_s"]["ours"]["1000"] * 1e3,
    )


def planner(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    judged, against = results["judged"], results["plan_against"]
    assert max(each["ratio"] for name, each in against.items() if name.endswith("it is")) < 1
    plan, timed = judged["all terms"], judged["plan of 24 timed"]
    return (
        *(plan[key] for key in ("workloads", "spearman", "points")),
        *within(plan),
        against["plan / unfused"]["ratio"],
        *within(timed),
        against["plan of 24 timed / unfused"]["ratio"],
    )


def within(judged: Any) -> tuple[float, ...]:  # noqa: ANN401
    return judged["within_5_percent"], judged["workloads"], 1 + judged["regret_worst"]


def planner_elsewhere(results: Any) -> tuple[int, ...]:  # noqa: ANN401
    judged = results["judged"]
    plan, timed = judged["all terms"], judged["plan of 24 timed"]
    return plan["within_5_percent"], plan["workloads"], timed["within_5_percent"]


def kinds(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    rows = results["workloads"].values()
    worst = max(row["chosen/best"] for row in rows)
    return len(rows), results["chosen_within_5_percent"], worst


def public_kernels(results: Any) -> tuple[int, ...]:  # noqa: ANN401
    checked, functions = results["load_and_check"], results["functions"]
    return checked, functions, round(100 * checked / functions), functions - checked


def tuned(results: Any) -> tuple[int, ...]:  # noqa: ANN401
    assert results["summary"]["worst_gain"] >= 1, "README says that none is slower"
    tasks = results["results"].values()
    better = len(results["summary"]["better_by_more_than_2_percent"])
    return better, len(tasks), sum(task["same_schedule"] for task in tasks), len(tasks)


def model(results: Any, name: str) -> tuple[float, ...]:  # noqa: ANN401
    model = results["models"][name]
    report = model["report"]
    return (
        *(report[key] for key in ("fused", "found", "bytes_saved")),
        model["before/after"]["median"],
    )


def means(results: Any, threads: str = "1") -> tuple[float, ...]:  # noqa: ANN401
    """Return the geometric mean of ours / best, for each family."""
    return tuple(family[threads] for family in results["geometric_mean_of_ours/best"].values())


def worst(results: Any, names: Any = None) -> float:  # noqa: ANN401
    """Return the largest ours / best on one thread, of all or of some."""
    chosen = results["models"] if names is None else names
    return float(max(results["models"][name]["1"]["ours/best"]["median"] for name in chosen))


def quantised(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    """Return the means where ONNX Runtime has fast kernels, too, and the largest ratio of all."""
    families = results["geometric_mean_of_ours/best"]
    means = tuple(families[name]["1"] for name in ("product", "conv", "depthwise"))
    return (*means, worst(results))


def compiled_models(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    """Return the means, and the worst of the architectures, which come after seven blocks."""
    names = list(results["models"])
    assert len(names) == 17, "the page says how many there are"
    return (*means(results), worst(results, names[7:]))
