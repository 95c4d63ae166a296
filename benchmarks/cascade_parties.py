"""The parties of `cascades.py`, each run by a process of its own, as those of `models.py` are.

python benchmarks/cascade_parties.py PARTY THREADS
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import tvm
from model_parties import ONNX, OURS, Run, serve
from onnx import TensorProto, helper
from torch.nn import functional
from tvm import tirx

from fuse_epilogue.models import import_model
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule, schedules_of

TORCH, ONE_BY_ONE = "torch", "ONNX Runtime, one by one"
PARTIES = (OURS, TORCH, ONNX, ONE_BY_ONE)
OPSET = 23


@dataclass(frozen=True)
class Case:
    """A function, its operands, and what computes it in ONNX.

    Attributes
    ----------
    function : callable
        Of torch.
    shapes : tuple[tuple[int, ...], ...]
        Shapes of its operands.
    graphs : dict
        By the party, nodes of ONNX that read "x0", "x1", ... and write "y".
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    graphs: dict[str, list[Any]]


class Module(torch.nn.Module):
    """A function as a module, which torch exports."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Any) -> Any:
        """Compute the function."""
        return self.function(*operands)


def attention(heads: int, queries: int, keys: int, size: int, groups: int, causal: bool) -> Case:
    """Attention of as many heads, which share keys and values by groups."""
    shapes = ((1, heads, queries, size), (1, groups, keys, size), (1, groups, keys, size))

    def function(q: Any, k: Any, v: Any) -> Any:
        grouped = groups != heads
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=grouped
        )

    whole = [helper.make_node("Attention", ["x0", "x1", "x2"], ["y"], is_causal=int(causal))]
    graphs = {ONNX: whole}
    if groups == heads and not causal:
        factor = helper.make_tensor("factor", TensorProto.FLOAT, [], [1 / math.sqrt(size)])
        graphs[ONE_BY_ONE] = [
            helper.make_node("Constant", [], ["c"], value=factor),
            helper.make_node("Transpose", ["x1"], ["k"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["x0", "k"], ["s"]),
            helper.make_node("Mul", ["s", "c"], ["t"]),
            helper.make_node("Softmax", ["t"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "x2"], ["y"]),
        ]
    return Case(function, shapes, graphs)


def rows(kind: str, count: int, size: int) -> Case:
    """A softmax or a layer norm of rows."""
    whole, weight = (count, size), (size,)
    if kind == "softmax":
        node = helper.make_node("Softmax", ["x0"], ["y"], axis=-1)
        return Case(lambda x: torch.softmax(x, -1), (whole,), {ONNX: [node]})
    node = helper.make_node("LayerNormalization", ["x0", "x1", "x2"], ["y"], axis=-1)
    return Case(
        lambda x, w, b: functional.layer_norm(x, weight, w, b),
        (whole, weight, weight),
        {ONNX: [node]},
    )


CASES: dict[str, Callable[[], Case]] = {
    "attention 12x128x64": lambda: attention(12, 128, 128, 64, 12, False),
    "attention 12x197x64": lambda: attention(12, 197, 197, 64, 12, False),
    "attention 12x512x64": lambda: attention(12, 512, 512, 64, 12, False),
    "attention 8x2048x64": lambda: attention(8, 2048, 2048, 64, 8, False),
    "attention 8/2x128x64": lambda: attention(8, 128, 128, 64, 2, False),
    "causal attention 12x512x64": lambda: attention(12, 512, 512, 64, 12, True),
    "one query 8x4096x64": lambda: attention(8, 1, 4096, 64, 8, False),
    **{
        f"{kind} {count}x{size}": lambda kind=kind, count=count, size=size: rows(kind, count, size)
        for kind in ("softmax", "layer norm")
        for count, size in ((128, 64), (128, 768), (128, 4096), (16, 65536))
    },
}


def operands_of(case: Case) -> list[Any]:
    """Return the same operands in every process."""
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in case.shapes]


def of_us(case: Case, threads: int) -> Run:
    """Return a function that runs the kernel."""
    operands = operands_of(case)
    mod = import_model(Module(case.function).eval(), tuple(operands))
    done = scheduled(mod, ScheduleModule(host(threads), threads=threads))
    kinds = [each.kind for each in schedules_of(done) or ()]
    if len(kinds) != 1 or kinds == ["default"]:
        raise RuntimeError(f"it is not one kernel: {', '.join(kinds)}")
    ((var, func),) = [
        (var, func) for var, func in done.functions.items() if isinstance(func, tirx.PrimFunc)
    ]
    by_name = {param.name: array for param, array in zip(mod["main"].params, operands, strict=True)}
    names = [arg.name for arg in _call(done["main"], var).args[1]]
    arrays = [tvm.runtime.tensor(by_name[name].numpy()) for name in names]
    out = tvm.runtime.tensor(np.empty([int(size) for size in func.params[-1].shape], "float32"))
    run = tvm.compile(func.with_attr("global_symbol", "main"), host(threads))["main"]

    def once() -> Any:
        run(*arrays, out)
        return out

    return once


def _call(main: Any, var: Any) -> Any:
    """Return the call of a function in a function of Relax."""
    for block in main.body.blocks:
        for binding in block.bindings:
            arguments = list(getattr(binding.value, "args", ()))
            if arguments and arguments[0].same_as(var):
                return binding.value
    raise RuntimeError("nothing calls the kernel")


def of_torch(case: Case) -> Run:
    """Return a function that calls torch's."""
    operands = operands_of(case)
    return lambda: case.function(*operands)


def of_onnx(nodes: list[Any], case: Case, threads: int) -> Run:
    """Return a function that runs ONNX Runtime."""
    operands = operands_of(case)
    inputs = [
        helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, shape)
        for number, shape in enumerate(case.shapes)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, case.shapes[0])
    graph = helper.make_graph(nodes, "case", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result = np.empty(case.shapes[0], "float32")
    binding = session.io_binding()
    for number, operand in enumerate(operands):
        binding.bind_cpu_input(f"x{number}", operand.numpy())
    binding.bind_output("y", "cpu", 0, "float32", result.shape, result.ctypes.data)

    def once() -> Any:
        session.run_with_iobinding(binding)
        return result

    return once


def load(party: str, threads: int, request: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Make a case ready, run it, and save its result."""
    case = CASES[request["model"]]()
    if party == OURS:
        run = of_us(case, threads)
    elif party == TORCH:
        run = of_torch(case)
    else:
        run = of_onnx(case.graphs[party], case, threads)
    np.save(request["result"], np.asarray(run().numpy() if party in (OURS, TORCH) else run()))
    return run, {}


if __name__ == "__main__":
    serve(load)
