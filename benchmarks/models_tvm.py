"""A model in TVM: imported, lowered by Relax's own passes, compiled for LLVM, run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline


def imported(module: Any, x: Any) -> tvm.IRModule:
    """A module of PyTorch as Relax, through torch.export; its weights are constants."""
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    with torch.no_grad():
        exported = torch.export.export(module, (x,))
        return from_exported_program(exported, unwrap_unit_return_tuple=True)


def imported_onnx(model: Any) -> tvm.IRModule:
    """A model of ONNX as Relax; its weights are constants."""
    from tvm.relax.frontend.onnx import from_onnx

    return from_onnx(model)


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as Relax's own default pipeline has it behind `FuseTIR`."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.ir.transform.Sequential(passes)(mod)


class Runner:
    """A lowered module, compiled by the rest of the default pipeline."""

    def __init__(self, mod: tvm.IRModule, target: tvm.target.Target) -> None:
        passes = [
            *pipeline.dataflow_lower_passes(target),
            *pipeline.finalize_passes(target),
        ]
        built = tvm.compile(mod, target, relax_pipeline=tvm.ir.transform.Sequential(passes))
        self.machine = relax.VirtualMachine(built, tvm.cpu())

    def arguments(self, arrays: Sequence[np.ndarray]) -> list[tvm.runtime.Tensor]:
        """Arrays in memory that is aligned as the compiled code expects."""
        return [tvm.runtime.tensor(array) for array in arrays]

    def __call__(self, *arguments: tvm.runtime.Tensor) -> Any:
        return self.machine["main"](*arguments)

    def result(self, *arrays: np.ndarray) -> np.ndarray:
        """The only result."""
        result = self(*self.arguments(arrays))
        while not hasattr(result, "numpy"):  # a tuple of one
            (result,) = result
        return np.asarray(result.numpy())


def many_functions(layers: int) -> tvm.IRModule:
    """A model of that many functions of different sizes, grouped by `FuseOps`.

    By turns: convolution, bias, ReLU; product, bias, GELU; convolution, bias, residual, ReLU;
    softmax; product and bias.
    """
    builder = relax.BlockBuilder()
    kinds = ("conv", "dense", "residual", "softmax", "linear")
    params: list[list[relax.Var]] = []
    for i in range(layers):
        c, kind = 4 + i, kinds[i % len(kinds)]
        if kind in ("conv", "residual"):
            shapes = [[1, c, 10, 10], [c, c, 3, 3], [1, c, 1, 1], [1, c, 10, 10]]
        elif kind == "softmax":
            shapes = [[4, c]]
        else:
            shapes = [[4, c], [c, 8], [8]]
        if kind == "conv":
            shapes.pop()
        params.append(
            [
                relax.Var(f"p{i}_{j}", relax.TensorType(shape, "float32"))
                for j, shape in enumerate(shapes)
            ]
        )
    with builder.function("main", [var for own in params for var in own]):
        with builder.dataflow():
            outs = []
            for i, own in enumerate(params):
                kind = kinds[i % len(kinds)]
                if kind == "softmax":
                    outs.append(builder.emit(relax.op.nn.softmax(own[0], axis=-1)))
                    continue
                conv = kind in ("conv", "residual")
                x, weight = own[:2]
                y = relax.op.nn.conv2d(x, weight, padding=1) if conv else relax.op.matmul(x, weight)
                y = builder.emit(y)
                for other in own[2:]:
                    y = builder.emit(relax.op.add(y, other))
                if kind != "linear":
                    y = builder.emit((relax.op.nn.relu if conv else relax.op.nn.gelu)(y))
                outs.append(y)
            out = builder.emit_output(relax.Tuple(outs))
        builder.emit_func_output(out)
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
    ]
    return tvm.ir.transform.Sequential(passes)(builder.get())
