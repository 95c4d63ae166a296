"""The rows of `figures`: which file of results every figure on the pages comes from.

Where a row fails, either the text was edited, or the results are new: the test's message holds the
text as it should be.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from .figures import Row


def _fusion(results: Any, family: str, rival: str, epilogue: str = "+ bias") -> dict[str, float]:  # noqa: ANN401
    """Return the median of rival's time over ours, by the size of the reduction."""
    return {
        program["size"]: program["ratio_to_ours"][rival]["median"]
        for program in results["results"][family]["programs"]
        if program["epilogue"] == epilogue
    }


def _span(values: Any) -> tuple[float, float]:  # noqa: ANN401 - an iterable of numbers
    values = list(values)
    return min(values), max(values)


def _small(sizes: dict[str, float], largest: int) -> list[float]:
    """Select reductions of at most ``largest`` steps."""
    return [ratio for size, ratio in sizes.items() if int(size.removeprefix("K = ")) <= largest]


def _tiles_large(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (_fusion(results, "tile_large", rival) for rival in ("unfused", "by hand"))
    return (*_span(_small(unfused, 16)), unfused["K = 64"], *_span(by_hand.values()))


def _tiles_small(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (_fusion(results, "tile_small", rival) for rival in ("unfused", "by hand"))
    return unfused["K = 1"], unfused["K = 16"], by_hand["K = 1"]


def _by_rows(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (_fusion(results, "row", rival) for rival in ("unfused", "by hand"))
    return (*(unfused[f"K = {k}"] for k in (1, 8, 64)), *_span(_small(by_hand, 16)))


def _split(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    unfused, by_hand = (_fusion(results, "split_large", rival) for rival in ("unfused", "by hand"))
    shortest, longest = "K = 2 x 4", "K = 8 x 32"
    return unfused[shortest], unfused[longest], by_hand[shortest], by_hand[longest]


def _split_relu(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    large, small, by_hand, small_by_hand = (
        _fusion(results, family, rival, "+ bias + ReLU")
        for rival in ("unfused", "by hand")
        for family in ("split_large", "split_small")
    )
    at = "K = 2 x 4"
    return (*_span(large.values()), small[at], by_hand[at], small_by_hand[at])


def _convolution(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    rivals = ("unfused", "by hand")
    return tuple(_fusion(results, "conv", rival, "+ bias + ReLU")["F = 4"] for rival in rivals)


def _conv1d(results: Any, case: str) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return a case in float32 with data that is not flushed, on one thread and on two."""
    rows = (row for row in results["results"] if row["case"] == case and row["state"] == "warm")
    return sorted((r for r in rows if r["dtype"] == "float32"), key=lambda row: row["threads"])


def _of_memcpy(results: Any, case: str) -> list[float]:  # noqa: ANN401
    return [row["ratio_to_memcpy"]["ours"]["median"] for row in _conv1d(results, case)]


def _of_memcpy_between(results: Any, dtype: str, *cases: str) -> tuple[float, float]:  # noqa: ANN401
    rows = (r for r in results["results"] if r["case"] in cases and r["dtype"] == dtype)
    return _span(r["ratio_to_memcpy"]["ours"]["median"] for r in rows)


def _longer_than_memcpy(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    one_thread = (("mamba",), ("short", "patches"))
    return (
        *_of_memcpy_between(results, "float32", "l2", "thin"),
        *(max(_of_memcpy(results, case)[0] for case in cases) for cases in one_thread),
        *_of_memcpy_between(results, "float32", "audio"),
        *_in_sixteen_bits(results, "main"),
        *_in_sixteen_bits(results, "mamba"),
        *_of_memcpy_between(results, "int8", "main", "short"),
    )


def _in_sixteen_bits(results: Any, case: str) -> tuple[float, float]:  # noqa: ANN401
    types = "float16", "bfloat16"
    return _span(part for dtype in types for part in _of_memcpy_between(results, dtype, case))


def _best_peer(results: Any) -> list[float]:  # noqa: ANN401
    rows = _conv1d(results, "main")
    return [row["ratio_to_ours"][row["best_peer"]]["median"] for row in rows]


def _ladder(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    error = {r["step"]: abs(r["predicted_ms"] / r["published_ms"] - 1) for r in results["ladder"]}
    fourth = results["ladder"][4]
    explained = max(part for step, part in error.items() if step != 4)
    return explained * 100, fourth["predicted_ms"], fourth["published_ms"]


def _kernels(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    kernels = results["kernels"]["finite data"]
    chosen = [kernels[name] for name in ("trn1 bfloat16", "trn2 float32", "trn2 bfloat16")]
    parts = [kernel["predicted_ms"] / kernel["floor_ms"] for kernel in chosen]
    return (*(kernel["predicted_ms"] for kernel in chosen), *parts)


def _plan_for_trn1(results: Any) -> tuple[float]:  # noqa: ANN401
    asked = {"machine": "trn1", "dtype": "float32", "finite": False}
    (row,) = (row for row in results["trainium"] if asked.items() <= row.items())
    return (row["plan_predicted_us"] / 1000,)


def _both(results: Any, key: str) -> tuple[int, int]:  # noqa: ANN401
    return results["ours"][key], results["tvm"][key]


def _verdicts(results: Any, kind: str) -> tuple[int, int]:  # noqa: ANN401
    return results["ours"]["verdicts"][kind], results["tvm"]["verdicts"][kind]


def _per_layers(results: Any) -> tuple[float, ...]:  # noqa: ANN401
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


def _planner(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    judged, against = results["judged"], results["plan_against"]
    plan, timed = judged["all terms"], judged["plan of 24 timed"]
    slowest = max(each["ratio"] for name, each in against.items() if name.endswith("unfused"))
    return (
        *(plan[key] for key in ("spearman", "points", "within_5_percent", "workloads")),
        timed["within_5_percent"],
        timed["workloads"],
        *(1 + each["regret_worst"] for each in (plan, timed)),
        math.ceil(100 * (slowest - 1)),
    )


def _tuned(results: Any) -> tuple[int, ...]:  # noqa: ANN401
    assert results["summary"]["worst_gain"] >= 1, "README says that none is slower"
    tasks = results["results"].values()
    better = len(results["summary"]["better_by_more_than_2_percent"])
    return better, len(tasks), sum(task["same_schedule"] for task in tasks), len(tasks)


def _model(results: Any, name: str) -> tuple[float, ...]:  # noqa: ANN401
    model = results["models"][name]
    report = model["report"]
    return (
        *(report[key] for key in ("fused", "found", "bytes_saved")),
        model["before/after"]["median"],
    )


ROWS = (
    Row(
        "{:.1f} to {:.1f} at K <= 16, {:.1f} at 64 | {:.2f} to {:.2f}: nothing",
        "fusion.json",
        _tiles_large,
    ),
    Row(
        "{:.1f} at K = 1, {:.1f} at 16, nothing from 256 | {:.2f} at K = 1, nothing at 64",
        "fusion.json",
        _tiles_small,
    ),
    Row(
        "{:.1f} at K = 1, {:.1f} at 8, {:.1f} at 64 | {:.1f} to {:.1f} up to K = 16",
        "fusion.json",
        _by_rows,
    ),
    Row("{:.1f} at K = 2 x 4, {:.1f} at 8 x 32 | {:.1f} to {:.1f}", "fusion.json", _split),
    Row(
        "{:.2f} to {:.2f}; {:.2f} at 256 x 512, K = 2 x 4 | {:.1f}; {:.2f} at 256 x 512",
        "fusion.json",
        _split_relu,
    ),
    Row("4 taps, bias, ReLU | {:.1f} | {:.1f}: nothing", "fusion.json", _convolution),
    Row(
        "takes {:.2f} of the time of a `memcpy` of its bytes on one thread and {:.2f} on two",
        "conv1d_cpu.json",
        lambda r: _of_memcpy(r, "main"),
    ),
    Row(
        "oneDNN, the best of the others, takes {:.2f} and {:.2f} of ours",
        "conv1d_cpu.json",
        _best_peer,
    ),
    Row(
        "little data ({:.1f} to {:.1f}), SiLU ({:.1f} on one thread), short rows ({:.1f} on one "
        "thread), and where arithmetic is more than the bytes: 16 taps ({:.1f} to {:.1f}), 16 bits "
        "({:.1f} to {:.1f} with ReLU, {:.1f} to {:.1f} with SiLU), `int8` ({:.1f} to {:.1f})",
        "conv1d_cpu.json",
        _longer_than_memcpy,
    ),
    Row(
        "predicted within {:.1f} % of the published latencies, but for step 4: {:.2f} ms "
        "predicted, {:.2f} ms published",
        "neuron_ladder.json",
        _ladder,
    ),
    Row(
        "last kernel has {:.3f} ms predicted, {:.3f} ms published",
        "neuron_ladder.json",
        lambda r: (r["ladder"][-1]["predicted_ms"], r["ladder"][-1]["published_ms"]),
    ),
    Row(
        '`schedules.apply(layer, "trn1")` has {:.3f} ms in `float32`',
        "planning.json",
        _plan_for_trn1,
    ),
    Row(
        "{:.3f} ms in `bfloat16`, and on trn2 {:.3f} ms and {:.3f} ms: {:.2f}, {:.2f} and {:.2f} "
        "times",
        "neuron_ladder.json",
        _kernels,
    ),
    Row(
        "written by hand, where tiles differ, has {:.3f} ms on trn2 in `float32`",
        "neuron_ladder.json",
        lambda r: (r["kernels"]["by hand"]["trn2 float32"]["predicted_ms"],),
    ),
    Row(
        "measured times is {:.2f} over {} points; the plan is within 5 % of the best measured "
        "point for {} of the {}, and, chosen by the clock among 24 points (`measure=24`), for {} "
        "of the {}. At worst they take {:.2f} and {:.2f} times as long as the best point: timing "
        "errs too. No plan is slower than the best unfused one by more than {:.0f} %",
        "planner.json",
        _planner,
    ),
    *(
        Row(
            f"| {title} | {{}} of {{}} | {{:,}} | {{:.2f}} |",
            "models.json",
            functools.partial(_model, name=name),
        )
        for title, name in (
            ("Mamba block", "mamba"),
            ("two blocks of ResNet-18", "resnet18"),
            ("two blocks of ResNet-50", "resnet50"),
            ("BERT layer", "bert"),
            ("ViT layer", "vit"),
            ("quantised MLP", "quantised_mlp"),
            ("ConvNeXt block", "convnext"),
        )
    ),
    Row(
        "For 1,000 functions the pass takes {:.2f} of the time of TVM's `FuseTIR`, for 10 "
        "functions {:.2f}",
        "pass_time.json",
        lambda r: tuple(r["sizes"][n]["pass/FuseTIR"]["median"] for n in ("1000", "10")),
    ),
    Row(
        "it is faster by more than 2 % for {} of the {}, and the same schedule for {} of the {}",
        "tune.json",
        _tuned,
    ),
    Row("it could be called for | {:,} | {:,} |", "fuzz.json", lambda r: _both(r, "programs")),
    Row("can be fused | {:,} | {:,} |", "fuzz.json", lambda r: _both(r, "fusable")),
    Row("with the same result | {:,} | {:,} |", "fuzz.json", lambda r: _both(r, "fused")),
    Row(
        "although they can be fused | {:,} | {:,} |",
        "fuzz.json",
        lambda r: _verdicts(r, "refused-though-fusable"),
    ),
    Row(
        "with another result | {:,} | {:,} |",
        "fuzz.json",
        lambda r: _verdicts(r, "accepted-different"),
    ),
    Row("error that is no refusal | {:,} | {:,} |", "fuzz.json", lambda r: _verdicts(r, "error")),
    Row("a defined result | {:,} | {:,} |", "fuzz.json", lambda r: _verdicts(r, "ill-formed")),
    Row(
        "Of {:,} that were checked with generated programs it could not prove {:,}",
        "fuzz.json",
        lambda r: tuple(r["ours"][f"certificates_{what}"] for what in ("checked", "refused")),
    ),
    Row(
        "{:.2f} times as long as TVM's for 100 layers in one function, and {:.1f} times for a "
        "single one. With a function for each layer it is {:.1f} times for 10, {:.1f} for 100 and "
        "{:.1f} for 1,000, where it takes {:.2f} ms",
        "primitive.json",
        _per_layers,
    ),
)

#: Figures that nobody measured, as patterns, and what they are.
NOT_MEASURED = {
    r"Apache License 2\.0": "its version",
    r"TVM 0\.27": "the releases of TVM that the package is for",
    r"Python 3\.1\d": "the versions of Python that the package is for",
    r"within 0\.51 units": "a bound, kept by tests/test_schedules_functions.py",
    r"0 times infinity|the bias 0\.5": "the input of an example",
}
