"""Whole models: compiled, called with arrays of any library, reported."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi

import fuse_epilogue
from fuse_epilogue import workloads
from fuse_epilogue.models import ImportRefusal, ModelReport
from fuse_epilogue.schedules import host


def relax_model(*shapes: tuple[Any, ...], build: Any) -> Any:
    """A module whose "main" is what `build` makes of its inputs."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *inputs))
        builder.emit_func_output(result)
    return builder.get()


def dense(rng: np.random.Generator) -> tuple[Any, Any]:
    """A linear layer with ReLU, and the same in numpy."""
    weight = rng.standard_normal((8, 5)).astype("float32")
    bias = rng.standard_normal(8).astype("float32")

    def build(builder: Any, x: Any) -> Any:
        turned = builder.emit(relax.op.permute_dims(relax.const(weight)))
        y = builder.emit(relax.op.matmul(x, turned))
        return relax.op.nn.relu(builder.emit(relax.op.add(y, relax.const(bias))))

    return relax_model((4, 5), build=build), lambda x: np.maximum(x @ weight.T + bias, 0)


@pytest.fixture(scope="module")
def compiled() -> tuple[Any, Any]:
    mod, reference = dense(np.random.default_rng(0))
    return fuse_epilogue.compile(mod, host(1)), reference


class OfAnother:
    """An array of another library: only DLPack is known of it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_of_numpy(compiled: tuple[Any, Any]) -> None:
    model, reference = compiled
    x = np.random.default_rng(1).standard_normal((4, 5)).astype("float32")
    result = model(x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, reference(x), rtol=0, atol=1e-5)


def test_arrays_that_are_not_aligned_or_contiguous_or_writeable(compiled: tuple[Any, Any]) -> None:
    model, reference = compiled
    x = np.random.default_rng(1).standard_normal((4, 5)).astype("float32")
    memory = np.zeros(x.nbytes + 64, np.uint8)
    for offset in range(0, 64, 4):
        shifted = memory[offset : offset + x.nbytes].view("float32").reshape(x.shape)
        shifted[...] = x
        np.testing.assert_allclose(model(shifted), reference(x), rtol=0, atol=1e-5)
    frozen = x.copy()
    frozen.flags.writeable = False
    swapped = x.astype(x.dtype.newbyteorder())
    for other in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], frozen, swapped):
        np.testing.assert_allclose(model(other), reference(x), rtol=0, atol=1e-5)


def test_tensors_of_tvm_and_of_others(compiled: tuple[Any, Any]) -> None:
    model, reference = compiled
    x = np.ones((4, 5), "float32")
    of_tvm = model(tvm.runtime.tensor(x))
    assert isinstance(of_tvm, tvm.runtime.Tensor)
    np.testing.assert_allclose(of_tvm.numpy(), reference(x), rtol=0, atol=1e-5)
    np.testing.assert_allclose(model(OfAnother(x)), reference(x), rtol=0, atol=1e-5)


def test_tensors_of_torch(compiled: tuple[Any, Any]) -> None:
    torch = pytest.importorskip("torch")
    model, reference = compiled
    x = torch.ones(5, 4).T.requires_grad_()
    result = model(x)
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), reference(np.ones((4, 5))), rtol=0, atol=1e-5)


def test_tensors_of_torch_that_are_not_dense(compiled: tuple[Any, Any]) -> None:
    torch = pytest.importorskip("torch")
    model, _ = compiled
    with pytest.raises(TypeError, match=r"of layout torch.sparse_coo: .* x.to_dense\(\)"):
        model(torch.ones(4, 5).to_sparse())
    with pytest.raises(TypeError, match=r"is quantized: .* x.dequantize\(\)"):
        model(torch.quantize_per_tensor(torch.ones(4, 5), 0.1, 0, torch.qint8))


def test_calls_from_several_threads(compiled: tuple[Any, Any]) -> None:
    model, reference = compiled
    arrays = [np.full((4, 5), number, "float32") for number in range(6)]

    def calls(x: np.ndarray) -> list[np.ndarray]:
        return [model(x) for _ in range(300)]

    with ThreadPoolExecutor(len(arrays)) as pool:
        for x, results in zip(arrays, pool.map(calls, arrays), strict=True):
            np.testing.assert_allclose(
                np.stack(results), np.stack([reference(x)] * len(results)), rtol=0, atol=1e-4
            )


def test_a_result_stays_when_the_model_runs_again(compiled: tuple[Any, Any]) -> None:
    model, reference = compiled
    one, other = np.ones((4, 5), "float32"), np.full((4, 5), -2, "float32")
    first = model(one)
    model(other)
    np.testing.assert_allclose(first, reference(one), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([], TypeError, r"takes 1 arrays \(x0\), not 0"),
        ([np.ones((4, 5), "float64")], TypeError, "is float64, not float32"),
        ([np.ones((5, 4), "float32")], ValueError, r"has shape \(5, 4\), not \(4, 5\)"),
        ([[1.0]], TypeError, "arrays of numpy, torch"),
    ],
)
def test_arguments_that_do_not_fit(
    compiled: tuple[Any, Any], inputs: list[Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        compiled[0](*inputs)


def test_several_results_are_a_tuple() -> None:
    def build(builder: Any, x: Any, y: Any) -> Any:
        total = builder.emit(relax.op.add(x, y))
        return relax.Tuple([total, builder.emit(relax.op.nn.relu(x))])

    model = fuse_epilogue.compile(relax_model((3,), (3,), build=build), threads=1)
    x, y = np.array([1, -1, 2], "float32"), np.array([4, 5, 6], "float32")
    total, positive = model(x, y)
    assert total.tolist() == [5, 4, 8] and positive.tolist() == [1, 0, 2]


def test_a_size_with_a_name() -> None:
    n = tvm.tirx.Var("n", "int64")
    mod = relax_model((n, 3), (n, 3), build=lambda builder, x, y: relax.op.add(x, y))
    model = fuse_epilogue.compile(mod, threads=1)
    for size in (1, 7):
        assert model(*[np.ones((size, 3), "float32")] * 2).sum() == 6 * size
    with pytest.raises(ValueError, match=r"argument 1 .* not \(n, 3\) with \{'n': 2\}"):
        model(np.ones((2, 3), "float32"), np.ones((3, 3), "float32"))


def test_a_module_of_one_function_of_tir() -> None:
    model = fuse_epilogue.compile(tvm.IRModule({"f": workloads.matmul(8, 8, 8)}), threads=1)
    assert [each.name for each in model.signature.inputs] == ["a", "b", "bias"]
    a, b, bias = np.eye(8, dtype="float32"), np.ones((8, 8), "float32"), np.ones(8, "float32")
    assert model(a, b, bias).sum() == 128


def test_modules_without_a_model_are_refused(tmp_path: Path) -> None:
    func = workloads.matmul(8, 8, 8)
    with pytest.raises(ValueError, match="2 PrimFuncs .* none is named 'main'"):
        fuse_epilogue.compile(tvm.IRModule({"f": func, "g": func}))
    with pytest.raises(TypeError, match="model must be .* not int"):
        fuse_epilogue.compile(3)
    with pytest.raises(ImportRefusal, match="no file of that name"):
        fuse_epilogue.compile("none.onnx")
    with pytest.raises(ImportRefusal, match="is a folder: name an ONNX file in it"):
        fuse_epilogue.compile(tmp_path)
    (tmp_path / "model.fe").touch()
    with pytest.raises(ImportRefusal, match=r"model.fe' is named as .*: fuse_epilogue.load reads"):
        fuse_epilogue.compile(tmp_path / "model.fe")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 3}, "limit is for a PrimFunc"),
        ({"target": "trn1", "threads": 1}, "threads is not for models on Trainium"),
        ({"target": {"kind": "c"}}, "kind 'llvm'"),
        ({"example_inputs": ()}, "example_inputs is for torch modules"),
    ],
)
def test_options_that_are_not_for_models(options: dict[str, Any], message: str) -> None:
    mod, _ = dense(np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        fuse_epilogue.compile(mod, **options)


def test_a_primfunc_is_planned_as_before() -> None:
    func = workloads.matmul(8, 8, 8)
    built = fuse_epilogue.compile(func)
    arrays = [
        tvm.runtime.tensor(np.ones([int(n) for n in p.ty.shape], "float32")) for p in func.params
    ]
    built(*arrays)
    assert arrays[-1].numpy().tolist() == [[9.0] * 8] * 8
    with pytest.raises(ValueError, match="threads is for models"):
        fuse_epilogue.compile(func, threads=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'limits'"):
        fuse_epilogue.compile(func, limits=2)


def softmax() -> tvm.tirx.PrimFunc:
    x = te.placeholder((4, 128), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def parallel(func: tvm.tirx.PrimFunc) -> tvm.s_tir.Schedule:
    sch = tvm.s_tir.Schedule(func)
    sch.parallel(sch.get_loops("T_softmax_norm")[0])
    return sch


def test_a_primfunc_that_the_planner_does_not_know_is_compiled_as_in_a_model() -> None:
    values = np.random.default_rng(0).standard_normal((4, 128), "float32")
    expected = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    for func in (softmax(), parallel(softmax())):
        out = tvm.runtime.tensor(np.zeros_like(values))
        fuse_epilogue.compile(func)["main"](tvm.runtime.tensor(values), out)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)
    result = fuse_epilogue.compile(softmax(), "trn1")(values)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    # Options of a plan need one; and there is none without a kind.
    for refused in (
        lambda: fuse_epilogue.compile(softmax(), measure=2),
        lambda: fuse_epilogue.compile(softmax(), limit=2),
        lambda: fuse_epilogue.plan(softmax()),
    ):
        with pytest.raises(ValueError, match="compile it as it is with fuse_epilogue.compile"):
            refused()
    if not tvm.runtime.enabled("cuda"):
        with pytest.raises(RuntimeError, match="this TVM is built without CUDA"):
            fuse_epilogue.compile(softmax(), "h100")


def test_the_report(compiled: tuple[Any, Any]) -> None:
    model, _ = compiled
    (function,) = model.report.functions
    assert function.calls == 1 and function.measured_s is None
    report = model.profile(np.ones((4, 5), "float32"), repeats=3)
    assert report is model.report and report.measured
    assert report.share(report.functions[0]) == 1.0
    assert ModelReport.from_json(report.to_json()) == report
    assert function.name in str(report) and "100.0%" in str(report)
    assert f"<td>{function.name}</td>" in report._repr_html_()
    with pytest.raises(ValueError, match="repeats must be"):
        model.profile(np.ones((4, 5), "float32"), repeats=0)


def test_the_reason_of_every_choice() -> None:
    """Each kind says how it computes a function, what that takes, and what else there was."""

    def build(builder: Any, x: Any, w: Any) -> Any:
        y = builder.emit(relax.op.nn.softmax(builder.emit(relax.op.matmul(x, w))))
        y = builder.emit(relax.op.sort(builder.emit(relax.op.permute_dims(y, [1, 0]))))
        return builder.emit(relax.op.reshape(y, (2, 32, 40)))

    model = fuse_epilogue.compile(relax_model((40, 48), (48, 64), build=build), host(1))
    text = model.report.explain()
    for each in model.report.functions:
        assert each.name in text and each.explain() in text
        assert bool(each.ways) == (each.kind not in ("default", "view"))
    product = next(each for each in model.report.functions if each.kind == "contraction")
    assert product.ways[0].seconds == pytest.approx(product.predicted_s)
    assert {"products", "moving"} <= set(product.ways[0].parts)
    assert "chosen: tiles of" in product.explain() and "instead: " in product.explain()
    for kind in ("TVM's own loops", "a view, or a copy where it is a result of the model"):
        assert kind in text
    assert ModelReport.from_json(model.report.to_json()) == model.report


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"functions": [{"name": "f"}]})])
def test_reports_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="not the JSON of a model report"):
        ModelReport.from_json(text)


def test_the_pipeline_by_its_name() -> None:
    mod, reference = dense(np.random.default_rng(0))
    built = tvm.compile(mod, host(1), relax_pipeline="fuse_epilogue")
    x = np.ones((4, 5), "float32")
    result = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_allclose(result.numpy(), reference(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["relu", "clip"])
def test_a_nan_becomes_a_bound(name: str) -> None:
    """As the guide says; PyTorch's operators keep a NaN."""

    def build(_builder: Any, x: Any) -> Any:
        return relax.op.nn.relu(x) if name == "relu" else relax.op.clip(x, 0.0, 6.0)

    model = fuse_epilogue.compile(relax_model((4,), build=build), host(1))
    result = np.from_dlpack(model(np.array([np.nan, -1, 2, 5], "float32")))
    assert result[0] in (0, 6) and np.array_equal(result[1:], [0, 2, 5])


@pytest.mark.parametrize("target", [None, "trn2"])
def test_a_function_that_updates_a_parameter_is_no_model(target: str | None) -> None:
    """The state would be a result alone, made of what its memory happens to hold."""
    update = workloads.depthwise_conv1d_update(2, 8, 4)
    with pytest.raises(ValueError, match="'main' updates 'state' in place.*tvm.compile"):
        fuse_epilogue.compile(tvm.IRModule({"main": update}), target)


def test_a_function_that_returns_a_state_is_a_model() -> None:
    forward = workloads.depthwise_conv1d(1, 4, 9, 3, padding="causal", final_state=True)
    model = fuse_epilogue.compile(tvm.IRModule({"main": forward}))
    x, weight, bias = (
        np.ones((1, 4, 9), "float32"),
        np.ones((4, 3), "float32"),
        np.ones(4, "float32"),
    )
    y, state = model(x, weight, bias)
    assert y[0, 0].tolist() == [2.0, 3.0, *[4.0] * 7] and state.tolist() == x[:, :, 7:].tolist()


def test_a_constant_result_is_the_callers_own() -> None:
    """What the caller writes into it is not in the results of the next call."""

    def build(builder: Any, x: Any) -> Any:
        table = builder.emit(relax.op.arange(relax.prim_value(3), dtype="float32"))
        turned = builder.emit(relax.op.permute_dims(relax.const(np.ones((2, 3), "float32"))))
        return relax.Tuple([relax.op.add(x, x), table, turned, relax.const(5.0, "float32")])

    model = fuse_epilogue.compile(relax_model((2,), build=build), threads=1)
    for _ in range(2):
        found = model(np.ones(2, "float32"))
        assert [each.tolist() for each in found] == [[2, 2], [0, 1, 2], [[1, 1]] * 3, 5]
        for each in found:
            each[...] = 7
