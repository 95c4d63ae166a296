"""The rows of `figures`: which file of results every figure on the pages comes from.

Where a row fails, either the text was edited, or the results are new: the test's message holds the
text as it should be.
"""

from __future__ import annotations

import functools

from . import measured
from .figures import Row

MILLISECONDS = "{:.3f} {:.3f} {:.3f} {:.3f}"

ROWS = (
    Row(
        "{:.1f} to {:.1f} at K <= 16, {:.1f} at 64 {:.2f} to {:.2f}",
        "fusion.json",
        measured.tiles_large,
    ),
    Row(
        "{:.1f} at K = 1, {:.1f} at 16, nothing from 256 {:.2f} at K = 1, nothing at 64",
        "fusion.json",
        measured.tiles_small,
    ),
    Row(
        "{:.1f} at K = 1, {:.1f} at 8, {:.1f} at 64 {:.1f} to {:.1f} up to K = 16",
        "fusion.json",
        measured.by_rows,
    ),
    Row("{:.1f} at K = 2 x 4, {:.1f} at 8 x 32 {:.2f} to {:.2f}", "fusion.json", measured.split),
    *(
        Row(
            f"the same, {where} {{:.2f}} to {{:.2f}} {{:.2f}} to {{:.2f}}",
            "fusion.json",
            functools.partial(measured.split_relu, family=family),
        )
        for where, family in (("bias and ReLU", "split_large"), ("256 x 512", "split_small"))
    ),
    Row("4 taps, bias, ReLU {:.1f} {:.1f}: nothing", "fusion.json", measured.convolution),
    Row(
        "takes {:.2f} of the time of a ``memcpy`` of its bytes on one thread and {:.2f} on two",
        "conv1d_cpu.json",
        lambda r: measured.of_memcpy(r, "main"),
    ),
    Row(
        "oneDNN, the best of the others, takes {:.2f} and {:.2f} of ours",
        "conv1d_cpu.json",
        measured.best_peer,
    ),
    Row(
        "In ``float32`` a layer takes {:.1f} to {:.1f} of its bound with little data, "
        "{:.1f} to {:.1f} with SiLU, {:.1f} to {:.1f} with short rows and "
        "{:.1f} to {:.1f} with 16 taps; in 16 bits "
        "{:.1f} to {:.1f} with ReLU and {:.1f} to {:.1f} with SiLU; in ``int8`` {:.1f} to {:.1f}",
        "conv1d_cpu.json",
        measured.of_bounds,
    ),
    Row(
        "Of {} published latencies, of products of matrices and of depthwise conv1d, the "
        "prediction is within 15 % for {}, with a median error of {:.1f} %, and {} lie in the "
        "predicted range",
        "neuron_published.json",
        measured.published,
    ),
    Row(
        "its middle is off by {:.1f} % in the median, and by at most 30 % for {}",
        "neuron_published.json",
        measured.published_ranges,
    ),
    Row(
        "three kernels of a tutorial of 2024; the same text as its first one was published at "
        "{:.2f} ms and later at {:.2f} ms",
        "neuron_published.json",
        measured.published_twice,
    ),
    Row(
        "Any single number is off by {:.0f} % or more for one of these two. Without that tutorial "
        "the prediction is within 15 % for {} of {}, with a median error of {:.1f} %",
        "neuron_published.json",
        measured.published_later,
    ),
    Row(
        "predicted within {:.1f} % of the published latencies, but for step 4: {:.2f} ms "
        "predicted, {:.2f} ms published",
        "neuron_ladder.json",
        measured.ladder,
    ),
    Row(
        "With two in one instruction {:.2f} ms are predicted, with four {:.2f} ms",
        "neuron_ladder.json",
        lambda r: tuple(r["step_4_by_merged_sums"].values()),
    ),
    Row(
        "last kernel has {:.3f} ms predicted, {:.3f} ms published",
        "neuron_ladder.json",
        lambda r: (r["ladder"][-1]["predicted_ms"], r["ladder"][-1]["published_ms"]),
    ),
    Row(
        "compiled models take {:.2f} of the time of the best of PyTorch, ``torch.compile`` and "
        "ONNX Runtime in the geometric mean of seven blocks, and {:.2f} in that of ten "
        "architectures, of which the worst is at {:.2f}",
        "models.json",
        measured.compiled_models,
    ),
    Row(
        "take {:.2f} of the time of the best of PyTorch, `torch.compile` and ONNX Runtime in the "
        "geometric mean, and {:.2f} on two",
        "models.json",
        lambda r: (measured.means(r)[1], measured.means(r, threads="2")[1]),
    ),
    Row(
        "on two threads the means are {:.2f} and {:.2f}",
        "models.json",
        lambda r: measured.means(r, threads="2"),
    ),
    Row(
        "Convolutions one by one take {:.2f} of the time of the best of oneDNN and ONNX Runtime, "
        "depthwise ones {:.2f}, and none more than {:.2f}",
        "conv_layers.json",
        lambda r: (*measured.means(r), measured.worst(r)),
    ),
    Row(
        "Its gradients take {:.2f} to {:.2f} of the time of the backward pass of PyTorch's "
        "autograd",
        "conv1d_streams.json",
        lambda r: measured.extremes(r, "backward", "torch"),
    ),
    Row(
        "A step of 64 streams of 5120 channels takes {:.1f} to {:.1f} times as long as a "
        "``memcpy`` of the bytes that it touches, and at most {:.2f} of the time of "
        "``torch.compile``",
        "conv1d_streams.json",
        lambda r: (
            *measured.extremes(r, "update", "memcpy"),
            measured.extremes(r, "update", "torch.compile")[1],
        ),
    ),
    Row(
        "Products of bytes take {:.2f} of the time of ONNX Runtime's, convolutions {:.2f}, "
        "depthwise ones {:.2f}, and none more than {:.2f}",
        "quantised.json",
        measured.quantised,
    ),
    Row(
        "{} of {}, {} %, load and check for at least one choice of arguments. This says that they "
        "obey the rules; what they compute was not compared. The other {}:",
        "neuron_public.json",
        measured.public_kernels,
    ),
    Row(
        f"any data: ``schedules.apply(layer, machine)`` {MILLISECONDS}",
        "planning.json",
        measured.plans_for_trainium,
    ),
    Row(
        f"only finite data: ``schedules.neuron.DepthwiseConv1d(finite=True)`` {MILLISECONDS}",
        "neuron_ladder.json",
        functools.partial(measured.kernels, kind="finite data"),
    ),
    Row(
        f"written by hand, where tiles differ {MILLISECONDS}",
        "neuron_ladder.json",
        functools.partial(measured.kernels, kind="by hand"),
    ),
    Row(
        f"ways to divide the work of all tiles alike {MILLISECONDS}",
        "neuron_ladder.json",
        functools.partial(measured.kernels, kind="by hand", what="floor_ms"),
    ),
    Row(
        "For {} workloads outside of the calibration, on a Zen 3 "
        "(``benchmarks/results/planner.json``), the rank correlation of predicted and measured "
        "times is {:.2f} over {} points. By prediction alone the plan is within 5 % of the best "
        "measured point for {} of the {}; at worst it takes {:.2f} times as long as that, and "
        "{:.2f} times as long as the best unfused one. Chosen by the clock among 24 points "
        "(``measure=24``) it is within 5 % for {} of the {}, and at worst takes {:.2f} and {:.2f} "
        "times as long.",
        "planner.json",
        measured.planner,
    ),
    Row(
        "within 5 % for {} of the {}, and for {} chosen by the clock",
        "planner_znver5.json",
        measured.planner_elsewhere,
    ),
    Row(
        "For {} single functions on a Zen 5 (``benchmarks/results/kinds.json``), the chosen way is "
        "within 5 % of the best measured one for {}, and at worst takes {:.2f} times as long",
        "kinds.json",
        measured.kinds,
    ),
    *(
        Row(
            f"{title} {{}} of {{}} {{:,}} {{:.2f}}",
            "model_fusion.json",
            functools.partial(measured.model, name=name),
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
        "For 1,000 functions the pass takes {:.2f} of the time of TVM's ``FuseTIR``, for 10 "
        "functions {:.2f}",
        "pass_time.json",
        lambda r: tuple(r["sizes"][n]["pass/FuseTIR"]["median"] for n in ("1000", "10")),
    ),
    Row(
        "it is faster by more than 2 % for {} of the {}, and the same schedule for {} of the {}",
        "tune.json",
        measured.tuned,
    ),
    Row("programs judged | {:,} | {:,} |", "fuzz.json", lambda r: measured.both(r, "programs")),
    Row("of these, fusable | {:,} | {:,} |", "fuzz.json", lambda r: measured.both(r, "fusable")),
    Row("fused, same result | {:,} | {:,} |", "fuzz.json", lambda r: measured.both(r, "fused")),
    *(
        Row(
            f"{what} | {{:,}} | {{:,}} |",
            "fuzz.json",
            functools.partial(measured.verdicts, kind=kind),
        )
        for what, kind in (
            ("refused although fusable", "refused-though-fusable"),
            ("accepted, different result", "accepted-different"),
            ("an error, not a refusal", "error"),
            ("no defined result", "ill-formed"),
        )
    ),
    Row(
        "Of {:,} generated programs it accepted {:,} that then computed something different; TVM's "
        "own primitive of the same name accepted {:,} of {:,}.",
        "fuzz.json",
        measured.unsound,
    ),
    Row(
        "short reduction takes {:.1f} to {:.1f} times as long unfused",
        "fusion.json",
        lambda r: measured.tiles_large(r)[:2],
    ),
    Row(
        "with bias and ReLU {:.1f} times",
        "fusion.json",
        lambda r: measured.convolution(r)[:1],
    ),
    Row(
        "K <= 16 | {:.1f} to {:.1f} | {:.2f} to {:.2f} |", "fusion.json", measured.short_reductions
    ),
    Row("the same, K = 64 | {:.1f} | {:.2f} |", "fusion.json", measured.longest_large),
    Row("4 taps, bias and ReLU | {:.1f} | {:.1f} |", "fusion.json", measured.convolution),
    Row(
        "K >= 256 | {:.2f} to {:.2f} | {:.2f} to {:.2f} |", "fusion.json", measured.long_reductions
    ),
    Row(
        "256 x 512, k split outside | {:.2f} to {:.2f} | {:.2f} to {:.2f} |",
        "fusion.json",
        functools.partial(measured.split_relu, family="split_small"),
    ),
    Row(
        "with TVM's default loops | {:.2f} to {:.2f} |",
        "model_fusion.json",
        lambda r: measured.span(model["before/after"]["median"] for model in r["models"].values()),
    ),
    Row(
        "A call takes {:.2f} times as long as TVM's in a function of 100 layers, and {:.1f} times "
        "in a function of one.",
        "primitive.json",
        lambda r: measured.per_layers(r)[:2],
    ),
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
        measured.per_layers,
    ),
)

#: Figures that nobody measured, as patterns, and what they are.
NOT_MEASURED = {
    r"Apache License 2\.0": "its version",
    r"TVM 0\.27": "the releases of TVM that the package is for",
    r"Python (from )?3\.1\d": "the versions of Python that the package is for",
    r"glibc 2\.28": "the C library that wheels are for",
    r"within 0\.51 units": "a bound, kept by tests/test_schedules_functions.py",
    r"0 times infinity|the bias 0\.5": "the input of an example",
}
