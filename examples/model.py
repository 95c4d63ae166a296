"""The small model of the demo: layer norm, an MLP with GELU, a residual; compiled in one call."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import checking
import fuse_epilogue
from fuse_epilogue.schedules import host

TOKENS, WIDTH, HIDDEN, EPSILON = 64, 256, 1024, 1e-5


class Mlp(nn.Module):
    """The second half of a transformer's layer."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def main(self, x: nn.Tensor) -> nn.Tensor:
        """Define the model; Relax calls this once, to record it."""
        return self.down(nn.op.gelu(self.up(self.norm(x)))) + x


def lines(repeats: int) -> Iterator[str]:
    """Compile the model, compare it with numpy, profile it; yield what there is to print."""
    mod, _ = Mlp().export_tvm({"main": {"x": nn.spec.Tensor((TOKENS, WIDTH), "float32")}})
    x, *weights = checking.normals(mod["main"].params)
    names = [str(param.name) for param in mod["main"].params[1:]]
    bound = {name: tvm.runtime.tensor(a) for name, a in zip(names, weights, strict=True)}
    mod = relax.transform.BindParams("main", bound)(mod)

    yield "  model = fuse_epilogue.compile(mod, threads=1)"
    model = fuse_epilogue.compile(mod, host(1), threads=1)
    yield "  y = model(x)"
    expected = reference(*(array.astype("float64") for array in (x, *weights)))
    error = checking.distance("the model", model(x), expected)
    yield f"  print(model.profile(x))     # error against numpy: {error:.0e}\n"
    yield str(model.profile(x, repeats=repeats))


def reference(
    x: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    up: np.ndarray,
    up_bias: np.ndarray,
    down: np.ndarray,
    down_bias: np.ndarray,
) -> np.ndarray:
    """Compute ``Mlp.main``, with the parameters in the order of the exported function."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    y = (centred / np.sqrt(variance + EPSILON) * scale + shift) @ up.T + up_bias
    return y * np.vectorize(phi)(y) @ down.T + down_bias + x


def phi(value: float) -> float:
    """Return the standard normal distribution function."""
    return (1 + math.erf(value / math.sqrt(2))) / 2
