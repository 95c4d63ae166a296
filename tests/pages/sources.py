"""The rows of `figures`: which file of results every figure on the pages comes from.

Where a row fails, either the text was edited, or the results are new: the test's message holds the
text as it should be.
"""

from __future__ import annotations

import functools
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
    return unfused["K = 2 x 4"], unfused["K = 8 x 32"], *_span(by_hand.values())


def _split_relu(results: Any, family: str) -> tuple[float, ...]:  # noqa: ANN401
    rivals = ("unfused", "by hand")
    found = (_fusion(results, family, rival, "+ bias + ReLU").values() for rival in rivals)
    return tuple(end for values in found for end in _span(values))


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


#: Columns of the table of Trainium: machines and types.
TRAINIUM = tuple((m, d) for m in ("trn1", "trn2") for d in ("float32", "bfloat16"))


def _kernels(results: Any, kind: str, what: str = "predicted_ms") -> tuple[float, ...]:  # noqa: ANN401
    kernels = results["kernels"][kind]
    return tuple(kernels[f"{machine} {dtype}"][what] for machine, dtype in TRAINIUM)


def _plans_for_trainium(results: Any) -> tuple[float, ...]:  # noqa: ANN401
    plans = {(r["machine"], r["dtype"]): r for r in results["trainium"] if not r["finite"]}
    return tuple(plans[column]["plan_predicted_us"] / 1000 for column in TRAINIUM)


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
    assert max(each["ratio"] for name, each in against.items() if name.endswith("it is")) < 1
    plan, timed = judged["all terms"], judged["plan of 24 timed"]
    return (
        *(plan[key] for key in ("workloads", "spearman", "points")),
        *_within(plan),
        against["plan / unfused"]["ratio"],
        *_within(timed),
        against["plan of 24 timed / unfused"]["ratio"],
    )


def _within(judged: Any) -> tuple[float, ...]:  # noqa: ANN401
    return judged["within_5_percent"], judged["workloads"], 1 + judged["regret_worst"]


def _planner_elsewhere(results: Any) -> tuple[int, ...]:  # noqa: ANN401
    judged = results["judged"]
    plan, timed = judged["all terms"], judged["plan of 24 timed"]
    return plan["within_5_percent"], plan["workloads"], timed["within_5_percent"]


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


MILLISECONDS = "| {:.3f} | {:.3f} | {:.3f} | {:.3f} |"

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
    Row("{:.1f} at K = 2 x 4, {:.1f} at 8 x 32 | {:.2f} to {:.2f}", "fusion.json", _split),
    *(
        Row(
            f"the same, {where}bias and ReLU | {{:.2f}} to {{:.2f}} | {{:.2f}} to {{:.2f}}",
            "fusion.json",
            functools.partial(_split_relu, family=family),
        )
        for where, family in (("", "split_large"), ("256 x 512, ", "split_small"))
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
        f"any data: `schedules.apply(layer, machine)` {MILLISECONDS}",
        "planning.json",
        _plans_for_trainium,
    ),
    Row(
        f"only finite data: `schedules.neuron.DepthwiseConv1d(finite=True)` {MILLISECONDS}",
        "neuron_ladder.json",
        functools.partial(_kernels, kind="finite data"),
    ),
    Row(
        f"written by hand, where tiles differ {MILLISECONDS}",
        "neuron_ladder.json",
        functools.partial(_kernels, kind="by hand"),
    ),
    Row(
        f"ways to divide the work of all tiles alike {MILLISECONDS}",
        "neuron_ladder.json",
        functools.partial(_kernels, kind="by hand", what="floor_ms"),
    ),
    Row(
        "For {} workloads outside of the calibration, on a Zen 3 "
        "(`benchmarks/results/planner.json`), the rank correlation of predicted and measured times "
        "is {:.2f} over {} points. By prediction alone the plan is within 5 % of the best measured "
        "point for {} of the {}; at worst it takes {:.2f} times as long as that, and {:.2f} times "
        "as long as the best unfused one. Chosen by the clock among 24 points (`measure=24`) it is "
        "within 5 % for {} of the {}, and at worst takes {:.2f} and {:.2f} times as long.",
        "planner.json",
        _planner,
    ),
    Row(
        "within 5 % for {} of the {}, and for {} chosen by the clock",
        "planner_znver5.json",
        _planner_elsewhere,
    ),
    *(
        Row(
            f"| {title} | {{}} of {{}} | {{:,}} | {{:.2f}} |",
            "model_fusion.json",
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
