"""Convolutions of ResNet-50, MobileNetV2 and ConvNeXt-T, one by one, on one thread.

Each layer of `models_transformers.py`, followed by ReLU, is run by three parties:

- ours: the scheduled convolution of `fuse_epilogue.compile`, without the conversions of layouts,
  which a whole model has at its ends only; those with 3 x 3 filters and stride 1 also with
  `winograd=True`;
- oneDNN: torch's fused operator on weights that are packed for it, channels last;
- ONNX Runtime: the node of the convolution alone, by its own profiler, which counts microseconds.

    python benchmarks/conv_layers.py            five minutes; writes results/conv_layers.json
    python benchmarks/conv_layers.py --only dense-64-64-3x3    a part; writes nothing

Results are compared before anything is timed. A sample is the median of as many runs as take 5 ms;
parties take turns. What to read: `ours/best`, as in `models.py`. Peers spend 10 to 100 us for each
call beside the kernel, except ONNX Runtime, which counts the kernel only.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fusion import conditions
from models import versions
from models_transformers import ARCHITECTURES
from primitive import in_turns, progress, ratio, to_json
from provenance import provenance
from torch import nn

import fuse_epilogue
from fuse_epilogue.schedules import host

RESULTS = Path(__file__).resolve().parent / "results" / "conv_layers.json"
OURS, WINOGRAD, ONEDNN, ONNX = "ours", "ours, Winograd", "oneDNN", "ONNX Runtime"
TOLERANCE = 1e-5  # of the largest result
TURNS = 15
SAMPLE_S = 0.005

#: Runs a layer a number of times and returns the seconds of each run.
Timer = Callable[[int], list[float]]


@dataclass(frozen=True)
class Layer:
    """A convolution with its input.

    Attributes
    ----------
    options : tuple
        Channels before and after, kernel, stride, padding, groups, as for ``torch.nn.Conv2d``.
    shape : tuple[int, ...]
        Of the input.
    """

    options: tuple[Any, ...]
    shape: tuple[int, ...]

    @property
    def depthwise(self) -> bool:
        """Whether every channel has a filter of its own."""
        channels, _, _, _, _, groups = self.options
        return bool(groups == channels and groups > 1)

    @property
    def winograd(self) -> bool:
        """Whether Winograd's algorithms are for it."""
        _, _, kernel, stride, _, groups = self.options
        return bool(kernel == (3, 3) and stride == (1, 1) and groups == 1)

    @property
    def name(self) -> str:
        channels, filters, kernel, stride, _, _ = self.options
        family = "depthwise" if self.depthwise else "dense"
        size = f"{kernel[0]}x{kernel[1]}" + (f"s{stride[0]}" if stride[0] > 1 else "")
        return f"{family}-{channels}-{filters}-{size}-{self.shape[2]}x{self.shape[3]}"

    def module(self) -> nn.Module:
        """Return the layer, followed by ReLU, with random weights."""
        channels, filters, kernel, stride, padding, groups = self.options
        conv = nn.Conv2d(channels, filters, kernel, stride, padding, groups=groups)
        return nn.Sequential(conv, nn.ReLU()).eval()


def layers_of(name: str) -> list[Layer]:
    """Return the different convolutions of an architecture, in their order."""
    module, x = ARCHITECTURES[name].build()
    found: dict[Layer, None] = {}

    def note(conv: Any, inputs: Any, _output: Any) -> None:
        shape = tuple(inputs[0].shape)
        padding = conv.padding if isinstance(conv.padding, tuple) else (0, 0)
        options = (
            *(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride),
            *(padding, conv.groups),
        )
        found.setdefault(Layer(options, shape))

    for each in module.modules():
        if isinstance(each, nn.Conv2d):
            each.register_forward_hook(note)
    with torch.no_grad():
        module(x)
    return list(found)


def of_us(module: nn.Module, x: torch.Tensor, winograd: bool = False) -> tuple[np.ndarray, Timer]:
    """The functions of the compiled layer that are no conversions of its layout."""
    # As in a network, whose images have the layout that its convolutions need.
    nhwc = x.permute(0, 2, 3, 1).contiguous()
    compiled = fuse_epilogue.compile(
        _ChannelsLast(module).eval(), host(1), example_inputs=(nhwc,), winograd=winograd
    )
    result = compiled(nhwc).permute(0, 3, 1, 2).numpy()

    def timed(count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            rows = compiled.profile(nhwc, repeats=1).functions
            seconds.append(
                sum(row.measured_s for row in rows if not row.name.startswith("transpose"))
            )
        return seconds

    return result, timed


class _ChannelsLast(nn.Module):
    """A layer on images of layout NHWC."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        return self.layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def of_onednn(module: nn.Module, x: torch.Tensor) -> tuple[np.ndarray, Timer]:
    """torch's fused convolution on packed weights."""
    conv: Any = module[0]  # type: ignore[index]
    options = (conv.padding, conv.stride, conv.dilation, conv.groups)
    ops = torch.ops.mkldnn
    nhwc = x.to(memory_format=torch.channels_last)
    weight = ops._reorder_convolution_weight(conv.weight.detach(), *options, list(x.shape))
    bias = conv.bias.detach()

    def run() -> torch.Tensor:
        return ops._convolution_pointwise(nhwc, weight, bias, *options, "relu", [], "")

    def timed(count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begin)
        return seconds

    return run().numpy(), timed


def of_onnx_runtime(module: nn.Module, x: torch.Tensor) -> tuple[np.ndarray, Timer]:
    """The node of the convolution, by ONNX Runtime's profiler."""
    import onnxruntime

    with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(io.StringIO()):
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    file = io.BytesIO()
    program.save(file)

    def session(profile: str | None) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, profile
        return onnxruntime.InferenceSession(
            file.getvalue(), options, providers=["CPUExecutionProvider"]
        )

    plain = session(None)
    feed = {plain.get_inputs()[0].name: x.numpy()}

    def timed(count: int) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            profiled = session(str(Path(folder) / "profile"))
            for _ in range(count + 1):
                profiled.run(None, feed)
            events = json.loads(Path(profiled.end_profiling()).read_text())
        durations = [
            event["dur"] * 1e-6
            for event in events
            if event.get("cat") == "Node"
            and event["name"].endswith("_kernel_time")
            and "Conv" in event["args"].get("op_name", "")
        ]
        return durations[-count:]

    return plain.run(None, feed)[0], timed


PARTIES: dict[str, Callable[..., tuple[np.ndarray, Timer]]] = {
    OURS: of_us,
    WINOGRAD: partial(of_us, winograd=True),
    ONEDNN: of_onednn,
    ONNX: of_onnx_runtime,
}


def measure(layer: Layer, turns: int) -> dict[str, Any]:
    """Compare the parties' results and time them in turns."""
    torch.manual_seed(0)
    module, x = layer.module(), torch.randn(layer.shape)
    with torch.no_grad():
        expected = module(x).numpy().astype("float64")
        made = {
            name: make(module, x)
            for name, make in PARTIES.items()
            if name != WINOGRAD or layer.winograd
        }
    differences = {
        name: float(np.abs(result - expected).max() / np.abs(expected).max())
        for name, (result, _) in made.items()
    }
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{layer.name}: {name} is {difference:.1e} off")
    counts = {}
    for name, (_, timed) in made.items():
        counts[name] = max(1, min(200, round(SAMPLE_S / max(min(timed(3)), 1e-6))))
    by_party = {name: partial(timed, counts[name]) for name, (_, timed) in made.items()}
    samples = in_turns(by_party, turns)
    medians = {name: statistics.median(each) for name, each in samples.items()}
    best = min((ONEDNN, ONNX), key=medians.__getitem__)
    allowed = {"winograd/best": ratio(samples, WINOGRAD, best)} if WINOGRAD in made else {}
    return allowed | {
        "parties": {name: {"difference": each} for name, each in differences.items()},
        "median_s": medians,
        "best": best,
        "ours/best": ratio(samples, OURS, best),
        "samples_s": {p: [float(f"{t:.4g}") for t in times] for p, times in samples.items()},
    }


def main() -> None:
    """Measure the layers that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="layers whose names begin so; no file"
    )
    parser.add_argument("--turns", type=int, default=TURNS)
    args = parser.parse_args()
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    torch.set_num_threads(1)
    report: dict[str, Any] = conditions(host(1), 1) | {
        "benchmark": "conv_layers",
        **provenance("conv_layers"),
        "threads": [1],
        "turns": args.turns,
    }
    report["versions"] |= versions()
    layers = {
        layer.name: layer
        for name in ("ResNet-50", "MobileNetV2", "ConvNeXt-T")
        for layer in layers_of(name)
    }
    rows: dict[str, dict[str, Any]] = {}
    ratios: dict[str, list[float]] = {"dense": [], "depthwise": []}
    allowed: list[float] = []
    for name, layer in layers.items():
        if args.only and not name.startswith(tuple(args.only)):
            continue
        progress(name)
        row = measure(layer, args.turns)
        progress()
        rows[name] = {"1": row}
        median = row["ours/best"]["median"]
        ratios["depthwise" if layer.depthwise else "dense"].append(median)
        times = "  ".join(f"{p} {each * 1e6:8.1f} us" for p, each in row["median_s"].items())
        print(f"{name:32} {times}   {median:.3f} of {row['best']}", flush=True)
        if "winograd/best" in row:
            allowed.append(row["winograd/best"]["median"])
            print(f"{'':32} {WINOGRAD} {allowed[-1]:.3f} of {row['best']}", flush=True)
    report["geometric_mean_of_ours/best"] = {
        family: {"1": math.exp(statistics.mean(map(math.log, each)))}
        for family, each in ratios.items()
        if each
    }
    for family, means in report["geometric_mean_of_ours/best"].items():
        print(f"geometric mean of ours/best, {family}: {means['1']:.3f}")
    if allowed:
        mean = math.exp(statistics.mean(map(math.log, allowed)))
        report["geometric_mean_of_winograd/best"] = {"dense, 3x3": {"1": mean}}
        print(f"geometric mean of winograd/best, 3x3: {mean:.3f}")
    report["models"] = rows
    if not args.only:
        RESULTS.write_text(to_json(report))


if __name__ == "__main__":
    main()
