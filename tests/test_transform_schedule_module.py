"""The pass that schedules a module: same results, constants packed once, nothing lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import row_operators
from fuse_epilogue import workloads
from fuse_epilogue.schedules import host
from fuse_epilogue.tir.walk import handle
from fuse_epilogue.transform import ScheduleModule, schedules_of
from fuse_epilogue.transform.constants import constant_parameters


def lowered(mod: Any) -> Any:
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    return tvm.transform.Sequential(passes)(mod)


def layer(rng: np.random.Generator) -> Any:
    """Two products with one weight, a normalisation, a softmax, heads."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((6, 12), "float32"))
    weight = relax.const(rng.standard_normal((12, 12)).astype("float32"))
    bias = relax.const(rng.standard_normal(12).astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(2):
                y = builder.emit(relax.op.matmul(y, relax.op.permute_dims(weight)))
                y = builder.emit(relax.op.nn.gelu(relax.op.add(y, bias)))
            y = builder.emit(relax.op.nn.layer_norm(y, bias, bias, axes=[-1]))
            y = builder.emit(relax.op.nn.softmax(y))
            y = builder.emit(relax.op.permute_dims(relax.op.reshape(y, (6, 3, 4)), [1, 0, 2]))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    built = tvm.compile(mod, target=host(1))
    result = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    return result.numpy()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_layer_computes_the_same(threads: int) -> None:
    rng = np.random.default_rng(1)
    before = lowered(layer(rng))
    after = ScheduleModule(host(threads))(before)
    x = rng.standard_normal((6, 12)).astype("float32")
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=0, atol=1e-6)
    reports = schedules_of(after)
    assert reports is not None
    # Equal functions are one function of Relax already; each has a line.
    assert len(reports) == sum(isinstance(f, tvm.tirx.PrimFunc) for f in before.functions.values())
    moved = [each for each in reports if "transpose" in each.name]
    assert [each.kind for each in moved] == ["elementwise"]


def test_what_it_did_not_schedule_stays() -> None:
    before = tvm.IRModule({"main": workloads.matmul(0x10, 8, 8, activation="relu")})
    after = ScheduleModule(host(1))(before)
    (report,) = schedules_of(after) or ()
    assert report.kind != "default" or report.why
    assert schedules_of(before) is None


@pytest.mark.parametrize("columns", [1, 7, 64, 99])
def test_a_depthwise_convolution_is_vectorized_along_its_rows(columns: int) -> None:
    func = workloads.relax_depthwise_conv1d(2, 3, columns, 5, activation="silu")
    before = tvm.IRModule({"main": func})
    after = ScheduleModule(host(1))(before)
    (report,) = schedules_of(after) or ()
    assert report.kind == "conv"

    rng = np.random.default_rng(columns)
    shapes = [[int(extent) for extent in param.ty.shape] for param in func.params]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    inputs[0].flat[0] = np.inf  # silu(-inf) is NaN or -0.0, as in TVM's own code
    results = []
    for mod in (before, after):
        result = tvm.runtime.tensor(np.full(shapes[-1], 7, "float32"))
        tvm.compile(mod, target=host(1))["main"](*map(tvm.runtime.tensor, inputs), result)
        results.append(result.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_a_function_that_is_not_called_by_call_tir_alone_has_no_constants() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("inner", [x]):
        builder.emit_func_output(x)
    (inner,) = (var for var in builder.get().get_global_vars() if var.name_hint == "inner")
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    with builder.function("main", [y]):
        builder.emit_func_output(builder.emit(relax.Call(inner, [y])))
    found = constant_parameters(builder.get())
    assert found == {handle(inner): frozenset()}


def gates(image: tuple[int, ...]) -> Any:
    """An image whose channels have gates, which a convolution computes from one value of each."""

    def gated(x: Any, mean: Any, weight: Any) -> Any:
        return op.nn.relu(op.multiply(x, op.sigmoid(op.nn.conv2d(mean, weight))))

    channels = image[1]
    shapes = [image, (image[0], channels, 1, 1), (channels, channels, 1, 1)]
    func = row_operators.function(gated, shapes)
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def test_a_sum_that_more_elements_read_is_computed_once() -> None:
    before = gates((2, 20, 7, 9))
    after = ScheduleModule(host(1))(before)
    (report,) = schedules_of(after) or ()
    assert report.kind == "several: contraction, elementwise"
    # As many elements as sums: one kernel.
    (report,) = schedules_of(ScheduleModule(host(1))(gates((2, 20, 1, 1)))) or ()
    assert report.kind == "contraction"

    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in param.ty.shape] for param in before["main"].params]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    results = []
    for mod in (before, after):
        result = tvm.runtime.tensor(np.full(shapes[-1], 7, "float32"))
        tvm.compile(mod, target=host(1))["main"](*map(tvm.runtime.tensor, arrays), result)
        results.append(result.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_progress_counts_functions() -> None:
    seen: list[tuple[int, int]] = []
    mod = lowered(layer(np.random.default_rng(1)))
    ScheduleModule(host(1), on_progress=lambda done, of: seen.append((done, of)))(mod)
    count = sum(isinstance(func, tvm.tirx.PrimFunc) for func in mod.functions.values())
    assert seen == [(done, count) for done in range(1, count + 1)]


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_threads_that_are_no_number_of_threads(threads: Any) -> None:
    with pytest.raises(ValueError, match="threads must be an integer from 1"):
        ScheduleModule(host(1), threads=threads)


def test_other_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="kind 'llvm'"):
        ScheduleModule({"kind": "c"})


def test_says_why_a_function_is_left_to_tvm() -> None:
    n = tvm.te.var("n", "int64")
    x = tvm.te.placeholder((n, 4), "float32", "x")
    y = tvm.te.placeholder((3, 4), "float32", "y")
    funcs = {
        "sized": tvm.te.create_prim_func([x, tvm.topi.cumsum(x, 1)]),
        "shifted": tvm.te.create_prim_func([y, tvm.topi.cumsum(y, 1, exclusive=True)]),
        "known": tvm.te.create_prim_func([y, tvm.topi.exp(y)]),
    }
    found = schedules_of(ScheduleModule(host(1))(tvm.IRModule(funcs))) or ()
    assert {each.name: each.why for each in found} == {
        "sized": "a size that is not constant is not that of independent rows",
        "shifted": "its loops are not blocks that compute every element of a buffer once",
        "known": "",
    }
