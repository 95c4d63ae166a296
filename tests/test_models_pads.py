"""Pads before convolutions: part of the convolution, or left as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.pads import FoldPads
from fuse_epilogue.schedules import host

WEIGHT = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")


def model(
    widths: list[int],
    value: float = 0.0,
    constant: bool = True,
    mode: str = "constant",
    scale: float = 1.0,
) -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3, 9, 8), "float32"))
    w = relax.Var("w", relax.TensorType(WEIGHT.shape, "float32"))
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            padded = builder.emit(relax.op.nn.pad(x, widths, pad_value=value, pad_mode=mode))
            weight = relax.const(WEIGHT * np.float32(scale)) if constant else w
            y = relax.op.nn.conv2d(padded, weight, strides=2, padding=(1, 0, 0, 1))
            out = builder.emit_output(relax.op.nn.relu(builder.emit(y)))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod: tvm.IRModule) -> list[str]:
    mod = relax.transform.DeadCodeElimination()(mod)
    names: list[str] = []
    relax.analysis.post_order_visit(
        mod["main"],
        lambda node: names.append(node.op.name) if hasattr(node, "op") else None,
    )
    return names


@pytest.mark.parametrize("widths", [[0, 0, 0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 2, 0, 1, 3]])
def test_zeros_become_padding(widths: list[int]) -> None:
    mod = model(widths)
    assert operators(FoldPads()(mod)) == ["relax.nn.conv2d", "relax.nn.relu"]
    made = fuse_epilogue.compile(mod, host(1))
    assert [each.kind for each in made.report.functions].count("default") == 0
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 8)).astype("float32")
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    expected = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(made(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "mod",
    [
        model([0, 0, 0, 0, 0, 1, 0, 1], 1.0),
        model([0, 0, 0, 0, 0, 1, 0, 1], constant=False),
        model([0, 0, 0, 0, 0, 1, 0, 1], mode="reflect"),
        model([0, 1, 0, 0, 0, 1, 0, 1]),
        model([0, 0, 0, 0, 0, -1, 0, 1]),
        model([0, 0, 0, 0, 0, 1, 0, 1], scale=np.inf),
        model([0, 0, 0, 0, 0, 1, 0, 1], scale=np.nan),
    ],
    ids=["ones", "weight of the call", "reflected", "batch", "cut", "infinite", "NaN"],
)
def test_other_pads_stay(mod: Any) -> None:
    assert operators(FoldPads()(mod)) == ["relax.nn.pad", "relax.nn.conv2d", "relax.nn.relu"]
