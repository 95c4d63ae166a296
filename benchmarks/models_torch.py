"""The models of `models.py` and `model_fusion.py` as modules of PyTorch: small, random weights.

Each is a block that real networks are made of, written out so that nothing but torch is needed.
Batch norms are folded into their convolutions, as everybody does before running a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def conv_norm(channels: int, out: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution with a batch norm (with statistics as if trained) folded into it."""
    conv = nn.Conv2d(channels, out, size, stride, size // 2, bias=False)
    norm = nn.BatchNorm2d(out)
    for value, low, high in (
        (norm.weight, 0.5, 1.5),
        (norm.bias, -0.5, 0.5),
        (norm.running_mean, -0.5, 0.5),
        (norm.running_var, 0.5, 1.5),
    ):
        nn.init.uniform_(value, low, high)
    return fuse_conv_bn_eval(conv.eval(), norm.eval())


class Residual(nn.Module):
    """ResNet: convolutions with ReLU between them, a shortcut, ReLU.

    `sizes` are the kernels: (3, 3) is the block of ResNet-18, (1, 3, 1) that of ResNet-50.
    """

    def __init__(self, channels: int, out: int, sizes: tuple[int, ...], stride: int) -> None:
        super().__init__()
        inner = out if len(sizes) == 2 else out // 4
        widths = [channels] + [inner] * (len(sizes) - 1) + [out]
        widest = max(range(len(sizes)), key=lambda i: (sizes[i], -i))  # has the stride
        self.convs = nn.ModuleList(
            conv_norm(widths[i], widths[i + 1], size, stride if i == widest else 1)
            for i, size in enumerate(sizes)
        )
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else conv_norm(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv in self.convs[:-1]:
            y = F.relu(conv(y))
        return F.relu(self.convs[-1](y) + self.shortcut(x))


def resnet(channels: int, sizes: tuple[int, ...]) -> nn.Module:
    """Two blocks: one that halves the picture, one that keeps it."""
    out = channels * 2
    return nn.Sequential(Residual(channels, out, sizes, 2), Residual(out, out, sizes, 1))


class Encoder(nn.Module):
    """A layer of BERT (`first=False`: normalised behind) or of ViT, on tokens x features."""

    def __init__(self, features: int, heads: int, first: bool) -> None:
        super().__init__()
        self.heads, self.first = heads, first
        self.query, self.key, self.value, self.out = (
            nn.Linear(features, features) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(2))
        self.up, self.down = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)

    def attend(self, x: Tensor) -> Tensor:
        tokens, features = x.shape
        size = features // self.heads
        q, k, v = (
            each(x).view(tokens, self.heads, size).transpose(0, 1)
            for each in (self.query, self.key, self.value)
        )
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(size), -1)
        return (weights @ v).transpose(0, 1).reshape(tokens, features)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.out(self.attend(self.norms[0](x)))
            return x + self.down(F.gelu(self.up(self.norms[1](x))))
        x = self.norms[0](x + self.out(self.attend(x)))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class QuantisedMlp(nn.Module):
    """Three layers on int8: products summed in int32, a bias, ReLU, requantised to int8."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        for i, (into, out) in enumerate(zip(widths, widths[1:], strict=False)):
            weight = torch.randint(-127, 128, (into, out), dtype=torch.int8)
            self.register_buffer(f"weight{i}", weight.to(torch.int32))
            bias = torch.randint(-1000, 1000, (out,), dtype=torch.int32)
            self.register_buffer(f"bias{i}", bias)
        self.layers = len(widths) - 1

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.layers):
            total = torch.matmul(x.to(torch.int32), getattr(self, f"weight{i}"))
            total = F.relu(total + getattr(self, f"bias{i}"))
            # A power of two: the product is exact on both sides.
            scale = 2.0 ** -(6 + math.ceil(math.log2(x.shape[-1]) / 2))
            x = torch.clamp(torch.round(total.to(torch.float32) * scale), -128, 127)
            x = x.to(torch.int8)
        return x


class ConvNext(nn.Module):
    """A depthwise convolution 7 x 7, layer norm, two layers with GELU, a scale, a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        n, h, w, c = y.shape
        y = self.down(F.gelu(self.up(y.reshape(n * h * w, c)))) * self.scale
        return x + y.reshape(n, h, w, c).permute(0, 3, 1, 2)


class Mamba(nn.Module):
    """The Mamba block on length x features: causal depthwise convolution, selective scan, gate."""

    def __init__(self, features: int, state: int, taps: int = 4) -> None:
        super().__init__()
        inner, rank = 2 * features, max(1, features // 16)
        self.state, self.rank = state, rank
        self.into, self.gate = nn.Linear(features, inner), nn.Linear(features, inner)
        self.conv = nn.Conv1d(inner, inner, taps, padding=taps - 1, groups=inner)
        self.select = nn.Linear(inner, rank + 2 * state, bias=False)
        self.step = nn.Linear(rank, inner)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(inner, 1))
        self.skip = nn.Parameter(torch.rand(inner))
        self.out = nn.Linear(inner, features)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[0]
        y = self.conv(self.into(x).transpose(0, 1).unsqueeze(0))[..., :length]
        y = F.silu(y)[0].transpose(0, 1)
        low, b, c = torch.split(self.select(y), [self.rank, self.state, self.state], 1)
        delta = F.softplus(self.step(low))
        grow = torch.exp(delta[:, :, None] * -torch.exp(self.decay))  # length, inner, state
        push = (delta * y)[:, :, None] * b[:, None, :]
        h, rows = torch.zeros_like(push[0]), []
        for t in range(length):
            h = grow[t] * h + push[t]
            rows.append((h * c[t]).sum(-1))
        y = torch.stack(rows) + y * self.skip
        return self.out(y * F.silu(self.gate(x)))


@dataclass(frozen=True)
class Model:
    """A module of PyTorch and what goes in.

    `small` makes a tiny one, for tests.
    """

    make: Callable[[bool], nn.Module]
    shape: Callable[[bool], tuple[int, ...]]
    quantised: bool = False

    def build(self, seed: int = 0, small: bool = False) -> tuple[nn.Module, Tensor]:
        """The module, in inference mode, and its input; the same for the same seed."""
        torch.manual_seed(seed)
        module, shape = self.make(small).eval(), self.shape(small)
        if self.quantised:
            return module, torch.randint(-128, 128, shape, dtype=torch.int8)
        return module, torch.randn(shape)


MODELS: dict[str, Model] = {
    "mamba": Model(
        lambda small: Mamba(8, 4) if small else Mamba(64, 16),
        lambda small: (5, 8) if small else (32, 64),
    ),
    "resnet18": Model(
        lambda small: resnet(4 if small else 32, (3, 3)),
        lambda small: (1, 4, 6, 6) if small else (1, 32, 28, 28),
    ),
    "resnet50": Model(
        lambda small: resnet(4 if small else 64, (1, 3, 1)),
        lambda small: (1, 4, 6, 6) if small else (1, 64, 28, 28),
    ),
    "bert": Model(
        lambda small: Encoder(8, 2, False) if small else Encoder(128, 4, False),
        lambda small: (5, 8) if small else (64, 128),
    ),
    "vit": Model(
        lambda small: Encoder(8, 2, True) if small else Encoder(128, 4, True),
        lambda small: (5, 8) if small else (65, 128),
    ),
    "quantised_mlp": Model(
        lambda small: QuantisedMlp((8, 12, 6) if small else (128, 256, 256, 64)),
        lambda small: (3, 8) if small else (64, 128),
        quantised=True,
    ),
    "convnext": Model(
        lambda small: ConvNext(4 if small else 64),
        lambda small: (1, 4, 5, 5) if small else (1, 64, 14, 14),
    ),
}
