"""Pages of the results: a title, a few sentences and tables, by file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import judged
from .numbers import NONE, ratio, seconds
from .rst import code, prose, table, text, title

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """The text and the tables of a page.

    Attributes
    ----------
    title : str
    about : str
        In reStructuredText: what was compared, and how it is to be read. No figures.
    show : Callable[[Mapping[str, Any]], Iterable[str]]
        Yields the parts of the page.
    """

    title: str
    about: str
    show: Callable[[Data], Iterable[str]]


def _convolutions(data: Data) -> Iterator[str]:
    for threads in data["threads"]:
        rows = [row for row in data["results"] if row["threads"] == threads]
        yield title(f"On {threads} thread{'s' if threads > 1 else ''}", 1)
        yield table(
            ("layer", "type", "data", "ours", "ours / memcpy", "best other", "best other / ours"),
            [
                (
                    text(f"{row['case']} {'×'.join(map(str, row['shape']))}"),
                    row["dtype"],
                    row["state"],
                    seconds(row["median_s"]["ours"]),
                    ratio(row["ratio_to_memcpy"].get("ours")),
                    text(row["best_peer"] or NONE),
                    ratio(row["ratio_to_ours"].get(row["best_peer"])),
                )
                for row in rows
            ],
        )
    yield title("Where it misses its aim", 1)
    yield """
The aim has two parts: *main* and *l2* in ``float32`` take at most 1.05 of the time of the
``memcpy``, and nothing else is faster than ours at any layer. For other layers and types there is
no aim beside the ``memcpy``: where arithmetic is more than the bytes they take longer than it.
"""
    yield "".join(f"- {prose(each)}\n" for each in data["missed"]) or "Nowhere.\n"


def _fusions(data: Data) -> Iterator[str]:
    for family in data["results"].values():
        yield title(family["title"], 1)
        yield f"Loops: {code(family['loops'])}\n"
        yield table(
            ("epilogue", "size", "unfused", "by hand", "ours", "unfused / ours", "by hand / ours"),
            [
                (
                    text(row["epilogue"]),
                    text(row["size"]),
                    *(_time(row["median_s"].get(name)) for name in ("unfused", "by hand", "ours")),
                    *(ratio(row["ratio_to_ours"].get(name)) for name in ("unfused", "by hand")),
                )
                for row in family["programs"]
            ],
        )


def _published(data: Data) -> Iterator[str]:
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


def _ladder(data: Data) -> Iterator[str]:
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


def _plans(data: Data) -> Iterator[str]:
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


def _plan(case: Data, plans: Iterable[str]) -> tuple[str, ...]:
    times = _times(case)
    best = min(times.values())
    return (
        text(case["name"]),
        *(_time(times.get(name)) for name in plans),
        seconds(best),
        f"{times['plan'] / best:.2f}",
        _time(times.get("best none")),
        _time(case.get("tvm_as_is")),
    )


def _times(case: Data) -> dict[str, float]:
    return {point["what"]: point["seconds"] for point in case["points"]}


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _primitive(data: Data) -> Iterator[str]:
    for name, result in data["results"].items():
        yield title(name.replace("_", " "), 1)
        medians = result["median_s"]
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


def _pass_time(data: Data) -> Iterator[str]:
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


def _registers(data: Data) -> Iterator[str]:
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


_REGISTERS = ("threads", "predicted", "given", "spilled_bytes")


def _planning(data: Data) -> Iterator[str]:
    for target, found in data["planning"].items():
        yield title(f"For {target}", 1)
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


def _models(data: Data) -> Iterator[str]:
    measured = {name: row for name, row in data["models"].items() if "median_s" in row}
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


def _peers(data: Data) -> Iterator[str]:
    for threads in map(str, data["threads"]):
        found = {
            name: by_threads[threads]
            for name, by_threads in data["models"].items()
            if "median_s" in by_threads.get(threads, {})
        }
        parties = list(dict.fromkeys(party for row in found.values() for party in row["median_s"]))
        yield title(f"On {threads} thread{'s' if threads != '1' else ''}", 1)
        yield table(
            ("model", *parties, "best other", "ours / best other", "difference"),
            [
                (
                    text(name),
                    *(_time(row["median_s"].get(party)) for party in parties),
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


def _kinds(data: Data) -> Iterator[str]:
    yield table(
        ("workload", "plans", "chosen / best", "rank correlation"),
        [
            (
                text(name),
                len(row["measured_s"]),
                f"{row['chosen/best']:.2f}",
                "-" if row["rank_correlation"] is None else f"{row['rank_correlation']:.2f}",
            )
            for name, row in data["workloads"].items()
        ],
    )
    yield (
        f"Rank correlation over all {data['points']} points: {data['rank_correlation']:.3f}. The "
        f"chosen plan is within 5 % of the best for {data['chosen_within_5_percent']} of "
        f"{len(data['workloads'])}.\n\n"
    )


def _tuned(data: Data) -> Iterator[str]:
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


def _time(value: float | None) -> str:
    return NONE if value is None else seconds(value)


#: By the name of the file in ``benchmarks/results``, without ".json".
SHOWN = {
    "conv1d_cpu": Told(
        "Depthwise conv1d on a CPU",
        """
The schedules of :func:`fuse_epilogue.schedules.apply` beside other libraries, and beside a
``memcpy`` of the bytes that the layer has to move. Layers are images × channels × columns × taps;
*cold* data were not in a cache.
""",
        _convolutions,
    ),
    "cuda_registers": Told(
        "Registers on CUDA",
        """
Registers of a thread as the planner predicts them, and as nvcc gives them to the same kernels: the
plans of some functions, and points drawn from all that are feasible. Nothing ran on a GPU for this.
*Within each*: the rank correlation within a function, its median.
""",
        _registers,
    ),
    "fusion": Told(
        "What fusing gains",
        """
The same loops unfused, with the epilogue placed by hand (TVM's ``reverse_compute_at`` and
``reverse_compute_inline``, where they accept it), and fused by ``fuse_reduction_epilogue``. Above 1
ours is faster.
""",
        _fusions,
    ),
    "fuzz": Told(
        "Generated programs",
        """
Generated reductions with epilogues, and what became of each: *accepted-different* is a program that
computes something else after the call, the only verdict that must never be. *tvm* is TVM's own
primitive on those programs that it can be called for.
""",
        judged.generated,
    ),
    "tvm_tests": Told(
        "TVM's own tests",
        """
The tests of schedules, MetaSchedule, dlight and FuseTIR from TVM's sources, run with this package's
entry point hidden and with it loaded. Tests differ only where they demand what TVM's own
``fuse_reduction_epilogue`` does wrong; those are listed with the reason.
""",
        judged.tests_of_tvm,
    ),
    "fuzz_cascades": Told(
        "Generated cascades",
        """
Generated chains of reductions that read each other's results by rows, and what became of each:
*accepted and different* must never be.
""",
        judged.cascades,
    ),
    "fuzz_certificates": Told(
        "Changed certificates",
        """
Certificates of right fusions with one field changed at random, and the function after changed with
it where the field says what a block stores. What :func:`fuse_epilogue.verify.check` accepts must
compute what the function before computes: *accepted and different* must never be.
""",
        judged.certificates,
    ),
    "mutants": Told(
        "Faults put into the package",
        """
Whether the quick tests notice faults: checks of the library switched off, wrong rows of tables, and
mutants of Python drawn from those of cosmic-ray. Each fault is judged by the tests that execute its
lines. *Killed*: a test failed.
""",
        judged.faults,
    ),
    "fuzz_cuda": Told(
        "Guarded functions for CUDA",
        """
Functions whose operands are defined under a guard only, scheduled for CUDA by rules and by plans,
and executed by the CPU next to memory that cannot be read. *Equal* is bit for bit what the
unscheduled function computes; *different* and *fault* must never be. *Undefined*: the unscheduled
function does not compile, or dies, in TVM itself.
""",
        judged.guarded,
    ),
    "fuzz_neuron": Told(
        "Guarded functions for Trainium",
        """
The same functions scheduled for Trainium and run by this package's interpreter of NKI, which checks
every access. A function for which no kernel can be emitted is *refused*, with its reason.
""",
        judged.guarded,
    ),
    "fuzz_modules": Told(
        "Random modules",
        """
Random modules of Relax, valid by construction, through
:class:`fuse_epilogue.transform.FuseReductionEpilogue` under both numerics. The results are compared
with those without the pass, with NumPy and with ONNX Runtime: *different* and *crashed* are of
modules that are right without the pass, and must never be.
""",
        judged.modules,
    ),
    "fuzz_schedules": Told(
        "Generated functions for LLVM",
        """
Products, reductions of rows and depthwise convolutions, most with operands that are defined under a
guard only. Each is scheduled for LLVM by its plan, by points drawn from the planner's space and by
rules, and executed next to memory that cannot be read. *Same* is bit for bit what the unscheduled
function computes, up to the sign of a zero; *different*, *died* and *error* must never be.
*Not-compiled*: TVM does not compile the unscheduled function.
""",
        judged.planned,
    ),
    "models": Told(
        "Whole models",
        """
Models of PyTorch with random weights, compiled by :func:`fuse_epilogue.compile`, beside PyTorch
without and with its compiler, and ONNX Runtime: in turns, a process for each. *Difference* is the
largest of any of them from PyTorch, as a part of the largest result. Below 1 ours is faster.
""",
        _peers,
    ),
    "conv_layers": Told(
        "Convolutions of networks, one by one",
        """
The convolutions of ResNet-50, MobileNetV2 and ConvNeXt-T, each followed by ReLU, on one thread:
those of :func:`fuse_epilogue.compile`, without the conversions of layouts at the ends of a model;
oneDNN's, on packed weights; and ONNX Runtime's node alone, by its profiler. *Difference* is the
largest of any of them from PyTorch, as a part of the largest result. Below 1 ours is faster.
""",
        _peers,
    ),
    "quantised": Told(
        "Products and convolutions of 8-bit integers",
        """
Layers with constant weights on one thread: sums of 32 bits, the same requantised to 8 bits, and
inputs in ``float32`` that are quantised at each call. ONNX Runtime's nodes are timed by its own
profiler. *Difference* is the largest from NumPy for sums and from ONNX Runtime otherwise. Where
both sides are signed, ONNX Runtime has no kernel with the processor's instructions. Below 1 ours is
faster.
""",
        _peers,
    ),
    "operators": Told(
        "Operators on odd sizes",
        """
Single operators of Relax on small and odd sizes, on one thread, as they are scheduled in a model,
beside the loops that TVM's default pipeline gives the same function: processor time of the function
alone. A call by itself takes 0.1 us. *Difference* is from TVM's, as a part of the largest result.
""",
        _peers,
    ),
    "kinds": Told(
        "Predictions of contractions",
        """
Plans for products and convolutions, predicted and timed: those that are predicted to be the fastest
of each choice of axes, packing and instruction. *Chosen / best*: time of the plan that is predicted
to be the fastest, and of the fastest by the clock.
""",
        _kinds,
    ),
    "model_fusion": Told(
        "Epilogues of whole models",
        """
Models before and after :class:`fuse_epilogue.transform.FuseReductionEpilogue`, otherwise compiled
in the same way. *By chance*: the ratio of the model before to a copy of it, which is what the clock
can tell apart. Above 1 the fused model is faster.
""",
        _models,
    ),
    "neuron_ladder": Told(
        "Trainium: the ladder",
        """
The seven kernels of a published study of depthwise conv1d on trn1, written as seven schedules of
this package, and its own kernels for the same layer, with a bias: by its rule, for any data and for
finite data, and one written by hand. Everything predicted is the latency model's. *Least of five*
is the least that the busiest of engines and DMA needs, among five ways to divide the work of all
tiles alike, at the documented costs and without any overhead, with DMA at the rates that its guide
says long transfers sustain: 272 GB/s on trn1, 368 GB/s on trn2. Kernels that do not treat all tiles
alike can be faster: on trn2 in ``float32`` the one by hand is, and it is faster than the rule's.
Step 4 is not explained: which sums the compiler of that run merged was not published.
The planner's results for this layer are on the page :doc:`planning`.
""",
        _ladder,
    ),
    "neuron_published": Told(
        "Trainium: published latencies",
        """
Every published latency of a kernel whose structure is known, beside the latency model's prediction
for a kernel of this project with the same structure. The model has one set of constants for each
machine, each from a document, and none is fitted to a kernel; the *range* is what the documents
leave open (:attr:`fuse_epilogue.neuron.prediction.Prediction.range_ms`). The products are of
4096 x 8192 by 8192 x 8192. The first kernel of the tutorial of 2024 and the first one of the search
of 2025 have the same text: no single number is near both latencies. The prediction is that of the
current guide; the upper end of the range takes short transfers as the older documents have them,
which fits the tutorial of 2024.
""",
        _published,
    ),
    "pass_time": Told(
        "Time of the pass",
        """
What :class:`fuse_epilogue.transform.FuseReductionEpilogue` takes for whole models of many
functions, beside TVM's own ``FuseTIR``, on whose result it works. *Pass again* is a second run,
which finds nothing to do.
""",
        _pass_time,
    ),
    "planning": Told(
        "Time of planning",
        """
What :func:`fuse_epilogue.plan` takes for one function, as processor time, and how large the space
of its schedules is. *Evaluated* are the points whose cost was computed; for Trainium, those of
which a kernel was made and predicted. Where the search was *in full*, the others were ruled out;
elsewhere some were left out, and the explanation of a plan says what is known of them. The last
table has predictions of the latency model for the layer of :doc:`neuron_ladder`: a plan beside the
schedule of ``schedules.neuron.DepthwiseConv1d``.
""",
        _planning,
    ),
    "planner": Told(
        "The planner against the clock",
        """
Predicted costs beside measured times, for workloads outside of the calibration. *Within each*:
the rank correlation within a workload, its median. *Within 5 %*: for how many workloads the
choice is that close to the best point that was measured; *loss* is how much slower it is.
*Without* a term: by the cost without it.
""",
        _plans,
    ),
    "planner_znver5": Told(
        "The planner against the clock, on a Zen 5",
        """
As :doc:`planner`, with an earlier version and on another processor. The shortest time of each point
counted there, and not its share of a turn.
""",
        _plans,
    ),
    "primitive": Told(
        "Time of the call",
        """
The time of one call of the primitive in modules of many layers, beside TVM's own; *method* is the
call from Python, with its report.
""",
        _primitive,
    ),
    "tune": Told(
        "Tuning with fusion in the space",
        """
MetaSchedule on the same tasks, twice, with as many trials and the same seed: in TVM's default space
(*without*), and in that space with the rule of :func:`fuse_epilogue.tune.space`, which offers every
reduction fused and as it is. The best of both searches are compiled again and timed in turns.
*Gain*: how many times faster the best with the rule is than the best without, 1 where both are the
*same schedule*; its mean is the geometric one. The last column is how many times faster the best
fused schedule of both searches is than their best unfused one.
""",
        _tuned,
    ),
}
