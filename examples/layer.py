"""The layer of the demo: a Relax module, its lowering to TIR, and the same layer in numpy.

The numpy functions are written from the definition of each operator, in float64, and share nothing
with TVM. ``STAGES`` lists those that contain a reduction, in the order the layer calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

EPSILON = 1e-5  # of the RMSNorm
TAPS = 5  # of the convolution: two zeros of padding on each side keep the length
WINDOW = 4  # of the max pooling, which takes every position once


@dataclass(frozen=True)
class Shape:
    """Sizes of the layer."""

    channels: int
    length: int
    hidden: int


class ConvMixer(nn.Module):
    """Depthwise Conv1D + bias + SiLU, RMSNorm, MLP with bias + ReLU, residual, a pooled softmax.

    ``main`` takes ``x`` of shape ``(1, channels, length)`` and returns
    ``(1, channels, length // WINDOW)``, both float32.
    """

    def __init__(self, shape: Shape) -> None:
        channels, hidden = shape.channels, shape.hidden
        self.conv = nn.Conv1D(channels, channels, TAPS, padding=TAPS // 2, groups=channels)
        self.norm = nn.RMSNorm(channels, axes=-1, epsilon=EPSILON, bias=False)
        self.up = nn.Linear(channels, hidden, bias=True)
        self.down = nn.Linear(hidden, channels, bias=True)

    def main(self, x: nn.Tensor) -> nn.Tensor:
        """Define the layer; Relax calls this once, to record it."""
        x = nn.op.permute_dims(nn.op.silu(self.conv(x)), [0, 2, 1])
        x = self.down(nn.op.relu(self.up(self.norm(x)))) + x
        return nn.op.softmax(nn.op.relu(max_pool(nn.op.permute_dims(x, [0, 2, 1]))), axis=-1)


def max_pool(x: nn.Tensor) -> nn.Tensor:
    """Take the maximum of every ``WINDOW`` positions; the frontend has no such operator."""
    pooled = relax.op.nn.max_pool1d(x._expr, pool_size=[WINDOW], strides=[WINDOW])
    return nn.op.wrap_nested(pooled, name="max_pool")


def exported(shape: Shape) -> tvm.IRModule:
    """Return the layer as a Relax module, whose function "main" takes ``x`` and the weights."""
    x = nn.spec.Tensor((1, shape.channels, shape.length), "float32")
    mod, _ = ConvMixer(shape).export_tvm({"main": {"x": x}})
    return mod


def lower(shape: Shape) -> tvm.IRModule:
    """Lower the layer to one PrimFunc per fused group, called by "main"."""
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    return tvm.ir.transform.Sequential(passes)(exported(shape))


def calls(main: relax.Function) -> Iterator[str]:
    """Yield the names of the PrimFuncs that ``main`` calls, in order."""
    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, tvm.ir.Call) and isinstance(value.args[0], tvm.ir.GlobalVar):
                yield value.args[0].name_hint


# ---- the same layer in numpy ----------------------------------------------------------------


def conv_silu(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Depthwise convolution of ``x (1, C, L)`` with ``weight (C, 1, TAPS)``, bias, SiLU."""
    length, half = x.shape[2], TAPS // 2
    padded = np.pad(x, ((0, 0), (0, 0), (half, half)))
    y = sum(padded[:, :, t : t + length] * weight[:, 0, t, None] for t in range(TAPS))
    y = y + bias.reshape(1, -1, 1)
    return y / (1 + np.exp(-y))


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Divide every row by its root mean square, and scale."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * weight


def linear_relu(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """First half of the MLP; ``weight`` is ``(in, out)``."""
    return np.maximum(x @ weight + bias, 0)


def linear_residual(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, skip: np.ndarray
) -> np.ndarray:
    """Second half of the MLP, and the residual; ``weight`` is ``(in, out)``."""
    return x @ weight + bias + skip


def pool_relu(x: np.ndarray) -> np.ndarray:
    """Take the maximum of ``WINDOW`` neighbours in ``x (1, C, L)``, and of 0."""
    return np.maximum(x.reshape(*x.shape[:2], -1, WINDOW).max(axis=-1), 0)


def softmax(x: np.ndarray) -> np.ndarray:
    """Exponentials of the last axis, divided by their sum."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


STAGES: tuple[tuple[str, Callable[..., np.ndarray]], ...] = (
    ("depthwise Conv1D + bias + SiLU", conv_silu),
    ("RMSNorm", rms_norm),
    ("Linear + bias + ReLU", linear_relu),
    ("Linear + bias + residual", linear_residual),
    ("max pooling + ReLU", pool_relu),
    ("softmax", softmax),
)


def whole_layer(
    x: np.ndarray,
    conv_weight: np.ndarray,
    conv_bias: np.ndarray,
    norm_weight: np.ndarray,
    up_weight: np.ndarray,
    up_bias: np.ndarray,
    down_weight: np.ndarray,
    down_bias: np.ndarray,
) -> np.ndarray:
    """Compute ``ConvMixer.main``, with the parameters in the order of the exported function."""
    mixed = conv_silu(x, conv_weight, conv_bias).transpose(0, 2, 1)
    hidden = linear_relu(rms_norm(mixed, norm_weight), up_weight.T, up_bias)
    mixed = linear_residual(hidden, down_weight.T, down_bias, mixed)
    return softmax(pool_relu(mixed.transpose(0, 2, 1)))
