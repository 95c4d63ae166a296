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

import contextlib
import io
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import layers
import numpy as np
import torch
from layers import ONNX, OURS, Timer, compare, our_timer, run
from models_transformers import ARCHITECTURES
from primitive import ratio
from torch import nn

import fuse_epilogue
from fuse_epilogue.schedules import host

WINOGRAD, ONEDNN = "ours, Winograd", "oneDNN"
TOLERANCE = 1e-5  # of the largest result


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
    return compiled(nhwc).permute(0, 3, 1, 2).numpy(), our_timer(compiled, nhwc)


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
    """The node of the convolution."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(io.StringIO()):
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    file = io.BytesIO()
    program.save(file)
    return layers.of_onnx_runtime(file.getvalue(), x.numpy(), lambda name: "Conv" in name)


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
        expected = module(x).numpy()
        made = {
            name: make(module, x)
            for name, make in PARTIES.items()
            if name != WINOGRAD or layer.winograd
        }
    row, samples = compare(layer.name, made, expected, TOLERANCE, turns, (ONEDNN, ONNX))
    if WINOGRAD in made:
        row["winograd/best"] = ratio(samples, WINOGRAD, row["best"])
    return row


def all_layers() -> dict[str, Layer]:
    """Return the convolutions of all networks, by name."""
    return {
        layer.name: layer
        for name in ("ResNet-50", "MobileNetV2", "ConvNeXt-T")
        for layer in layers_of(name)
    }


def families(layer: Layer) -> dict[str, str]:
    """Return of which layers means of the ratios are taken."""
    allowed = {"winograd/best": "dense, 3x3"} if layer.winograd else {}
    return {"ours/best": "depthwise" if layer.depthwise else "dense", **allowed}


if __name__ == "__main__":
    torch.set_num_threads(1)
    run("conv_layers", __doc__, all_layers, measure, families)
