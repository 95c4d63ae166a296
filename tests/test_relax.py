"""Functions as TVM makes them of a layer in Relax: legalized, grouped, and fused into one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from fused_block import blocks
from oracles import compile_together

pytestmark = pytest.mark.cpp


class DepthwiseLayer(nn.Module):
    """A convolution of each channel, SiLU, a residual and a conversion."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1D(6, 6, 4, padding=3, groups=6, bias=True)

    def forward(self, x: nn.Tensor, skip: nn.Tensor) -> nn.Tensor:
        return nn.op.astype(nn.op.silu(self.conv(x)) + skip, "float16")


class DenseLayer(nn.Module):
    """A product with a matrix, a bias, GELU and a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(10, 12, bias=True)

    def forward(self, x: nn.Tensor, scale: nn.Tensor) -> nn.Tensor:
        return nn.op.gelu(self.dense(x)) * scale


def fused_by_relax(module: nn.Module, spec: dict[str, Any]) -> PrimFunc:
    """The function with the most blocks that Relax's own fusion makes of the module."""
    mod, _ = module.export_tvm({"forward": spec})
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    mod = tvm.transform.Sequential(passes)(mod)
    functions = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    return max(functions, key=lambda func: len(blocks(func)))


def results(func: PrimFunc, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """What the function stores into its last parameter, unfused and fused in both ways."""
    ways = {"unfused": func}
    for numerics in ("reassociate", "exact"):
        sch = Schedule(func, debug_mask="all")
        sch.fuse_reduction_epilogue(reduction_of(func), numerics=numerics)
        ways[numerics] = sch.mod["main"]
    out = func.params[-1].ty
    shape = [int(extent) for extent in out.shape]
    found = {}
    for name, built in compile_together(ways).items():
        written = tvm.runtime.tensor(np.full(shape, np.nan, str(out.dtype)))
        built(*map(tvm.runtime.tensor, arrays), written)
        found[name] = written.numpy()
    return found


def reduction_of(func: PrimFunc) -> str:
    (name,) = [name for name, block in blocks(func).items() if block.init is not None]
    return name


def data(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [
        rng.standard_normal([int(extent) for extent in param.ty.shape]).astype(str(param.ty.dtype))
        for param in func.params[:-1]
    ]


DEPTHWISE = {
    "x": nn.spec.Tensor([1, 6, 9], "float32"),
    "skip": nn.spec.Tensor([1, 6, 12], "float32"),
}
DENSE = {"x": nn.spec.Tensor([7, 10], "float32"), "scale": nn.spec.Tensor([7, 12], "float32")}


@pytest.mark.parametrize(
    ("module", "spec", "before", "after"),
    [
        (DepthwiseLayer, DEPTHWISE, 7, 3),
        (DenseLayer, DENSE, 8, 2),
    ],
)
def test_a_layer_is_fused(module: Any, spec: dict[str, Any], before: int, after: int) -> None:
    func = fused_by_relax(module(), spec)
    assert len(blocks(func)) == before
    sch = Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue(reduction_of(func))
    assert report.stopped is None
    assert len(blocks(sch.mod["main"])) == after

    found = results(func, data(func))
    np.testing.assert_array_equal(found["exact"], found["unfused"])
    # A few roundings in the type of the output, of values as large as the largest.
    unfused = found["unfused"].astype("float64")
    error = np.abs(found["reassociate"] - unfused).max()
    assert error <= 8 * np.finfo(found["unfused"].dtype).eps * np.abs(unfused).max()
