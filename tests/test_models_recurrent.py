"""Recurrent layers of torch and ONNX: one function with a loop over the steps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

import fuse_epilogue
from fuse_epilogue.cli import model_files
from fuse_epilogue.models import ImportRefusal
from fuse_epilogue.recognize.recurrence import ATTR, CELLS, Layer, read_layer
from fuse_epilogue.schedules import host
from fuse_epilogue.tir.walk import substitute
from fuse_epilogue.transform.kinds import Work, candidates

STEPS, BATCH, FEATURES, SIZE = 5, 3, 6, 10


def random(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) / 2).astype("float32")


def near(results: Any, expected: Any) -> None:
    for result, aim in zip(results, expected, strict=True):
        assert result.shape == aim.shape
        np.testing.assert_allclose(np.asarray(result), aim, rtol=0, atol=1e-5 * np.abs(aim).max())


# ---- Functions -----------------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(x: Any, h: Any, c: Any, w: Any) -> tuple[Any, ...]:
    i, f, g, o = np.split(x + h @ w.T, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru(x: Any, h: Any, w: Any, b: Any) -> tuple[Any, ...]:
    (r, z, n), (xr, xz, xn) = np.split(h @ w.T + b, 3, 1), np.split(x, 3, 1)
    z, n = sigmoid(z + xz), np.tanh(xn + sigmoid(r + xr) * n)
    return ((1 - z) * n + z * h,)


def gru_of_reset_state(x: Any, h: Any, w: Any, last: Any) -> tuple[Any, ...]:
    (r, z), (xr, xz, xn) = np.split(h @ w.T, 2, 1), np.split(x, 3, 1)
    z, n = sigmoid(z + xz), np.tanh(xn + (sigmoid(r + xr) * h) @ last.T)
    return ((1 - z) * n + z * h,)


EXPECTED: dict[str, Any] = {
    "lstm": lstm,
    "gru": gru,
    "gru of reset state": gru_of_reset_state,
    "rnn tanh": lambda x, h, w: (np.tanh(x + h @ w.T),),
    "rnn relu": lambda x, h, w: (np.maximum(x + h @ w.T, 0),),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_a_layer_scheduled_and_as_it_is(cell: str, reverse: bool) -> None:
    layer = Layer(cell, STEPS, BATCH, SIZE, reverse=reverse)
    func = layer.function()
    assert read_layer(func) == layer
    found = next(candidates(Work(func, host(1), 1, frozenset(layer.weight_places()))))
    assert found.kind.startswith("steps of") and list(found.packing)
    x = random(STEPS, BATCH, CELLS[cell].gates * SIZE)
    first = [random(BATCH, SIZE) + n for n in range(CELLS[cell].states)]
    weights = [random(*shape) for shape in layer.weight_shapes()]
    states, y = first, np.zeros((STEPS, BATCH, SIZE), "float32")
    for t in range(STEPS)[:: -1 if reverse else 1]:
        states = EXPECTED[cell](x[t], *states, *weights)
        y[t] = states[0]
    packed = [
        found.packing[at].pack(each) if at in found.packing else each
        for at, each in zip(layer.weight_places(), weights, strict=True)
    ]
    for each, given in ((func, weights), (found.func, packed)):
        mod = tvm.IRModule({"main": each.with_attr("global_symbol", "main")})
        results = [np.full(aim.shape, np.nan, "float32") for aim in (y, *states)]
        arrays = [tvm.runtime.tensor(a) for a in (x, *first, *given, *results)]
        tvm.compile(mod, target=host(1))["main"](*arrays)
        near([a.numpy() for a in arrays[-len(results) :]], (y, *states))


def test_a_function_that_only_says_so_is_no_layer() -> None:
    func = Layer("gru", STEPS, BATCH, SIZE).function()
    assert read_layer(func.with_attr(ATTR, "gru reverse")) is None
    assert read_layer(func.with_attr(ATTR, "lstm")) is None
    assert read_layer(func.with_attr(ATTR, "of another kind")) is None
    assert read_layer(func.without_attr(ATTR)) is None
    steps = [each for each in tvm_ffi_loops(func) if each.loop_var.name == "t"]
    table = {steps[0].loop_var: tirx.const(0, "int64")}
    assert read_layer(func.with_body(substitute_uses(func.body, steps[0], table))) is None


def tvm_ffi_loops(func: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    return found


def substitute_uses(body: Any, loop: Any, table: Any) -> Any:
    def changed(node: Any) -> Any:
        if not node.same_as(loop):
            return node
        inner = substitute(node.body, table)
        return tirx.For(node.loop_var, node.min, node.extent, node.kind, inner)

    return tvm_ffi.structural_map(body, (tirx.For, changed), order="pre")


# ---- torch ---------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias": False, "bidirectional": True},
    ],
)
def test_layers_of_torch(kind: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="the layer is a module of PyTorch")
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(FEATURES, SIZE, **options).eval()
    x = torch.randn(STEPS, BATCH, FEATURES)
    found = fuse_epilogue.compile(layer, host(1), example_inputs=(x,))
    kinds = [each.kind for each in found.report.functions]
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    calls = [each.calls for each in found.report.functions if each.kind.startswith("steps of")]
    assert sum(calls) == count, kinds
    with torch.no_grad():
        y, last = layer(x)
    after = last if kind == "LSTM" else (last,)
    near(flat(found(x)), [each.numpy() for each in (y, *after)])


@pytest.mark.full
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_batch_of_any_size(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="the layer is a module of PyTorch")
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(FEATURES, SIZE).eval()
    x, any_size = torch.randn(STEPS, BATCH, FEATURES), torch.export.Dim("batch", min=1, max=64)
    found = fuse_epilogue.compile(
        layer, host(1), example_inputs=(x,), dynamic_shapes=({1: any_size},)
    )
    for batch in (1, 2, 17):
        x = torch.randn(STEPS, batch, FEATURES)
        with torch.no_grad():
            y, last = layer(x)
        after = last if kind == "LSTM" else (last,)
        near(flat(found(x)), [each.numpy() for each in (y, *after)])


def flat(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [each for value in values for each in flat(value)]
    return [np.asarray(values)]


@pytest.mark.full
def test_a_projection_is_written_out() -> None:
    torch = pytest.importorskip("torch", reason="the layer is a module of PyTorch")
    layer = torch.nn.LSTM(FEATURES, SIZE, proj_size=4).eval()
    x = torch.randn(STEPS, BATCH, FEATURES)
    found = fuse_epilogue.compile(layer, host(1), example_inputs=(x,))
    with torch.no_grad():
        y, (h, c) = layer(x)
    near(flat(found(x)), [each.numpy() for each in (y, h, c)])


# ---- ONNX ----------------------------------------------------------------------------------------

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def onnx_model(
    kind: str, *, first: bool = False, bias: bool = True, peephole: bool = False, **attributes: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    onnx = pytest.importorskip("onnx", reason="the model is one of ONNX")
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, state = GATES[kind] * SIZE, (directions, BATCH, SIZE)
    weights = {"W": random(directions, gates, FEATURES), "R": random(directions, gates, SIZE)}
    given = {"X": random(STEPS, BATCH, FEATURES)}
    if bias:
        weights["B"] = random(directions, 2 * gates)
    names = ["X", "W", "R", "B" if bias else "", ""]
    if first:
        for number in range(2 if kind == "LSTM" else 1):
            names.append(f"first{number}")
            given[names[-1]] = random(*state) + number
    if peephole:
        weights["P"] = random(directions, 3 * SIZE)
        names += [""] * (7 - len(names)) + ["P"]
    results = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    node = onnx.helper.make_node(kind, names, results, hidden_size=SIZE, **attributes)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "layer",
        [value(name, 1, each.shape) for name, each in given.items()],
        [value(name, 1, None) for name in results],
        [onnx.numpy_helper.from_array(each, name) for name, each in weights.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), given


@pytest.mark.full
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direction": "bidirectional", "first": True},
        {"direction": "reverse", "bias": False},
        {"linear_before_reset": 1, "first": True},
        {"activations": ["Relu"]},
    ],
)
def test_layers_of_onnx(kind: str, options: dict[str, Any]) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is the reference")
    if ("linear_before_reset" in options) > (kind == "GRU"):
        pytest.skip("only GRU has this attribute")
    if "activations" in options and kind != "RNN":
        pytest.skip("the others have several activations")
    model, given = onnx_model(kind, **options)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = fuse_epilogue.compile(model, host(1))
    near(flat(found(*given.values())), session.run(None, given))


@pytest.mark.full
@pytest.mark.parametrize("kind", GATES)
def test_a_layer_of_onnx_with_sizes_that_have_names(kind: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is the reference")
    model, _ = onnx_model(kind, direction="bidirectional")
    for place, name in enumerate(("steps", "batch")):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_param = name
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = fuse_epilogue.compile(model, host(1))
    for steps, batch in ((1, 1), (7, 2), (2, 17)):
        x = random(steps, batch, FEATURES)
        near(flat(found(x)), session.run(None, {"X": x}))


def test_on_trainium_a_layer_of_onnx_is_refused(tmp_path: Path) -> None:
    """A package has no loops over kernels."""
    model, _ = onnx_model("LSTM")
    path = tmp_path / "lstm.onnx"
    path.write_bytes(model.SerializeToString())
    for compiled in (
        lambda: fuse_epilogue.compile(model, "trn2"),
        lambda: model_files.package(
            argparse.Namespace(
                input=str(path), target="trn2", run_python=False, size=[], sizes=[],
                measure=None, database=None, threads=None, winograd=None,
            )
        ),
    ):  # fmt: skip
        with pytest.raises(
            (ImportRefusal, model_files.Refused),
            match="LSTM: a recurrent layer .* compile the model for one",
        ):
            compiled()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clip": 1.0}, "the attribute clip"),
        ({"peephole": True}, "a peephole"),
        ({"activations": ["Sigmoid", "Tanh", "Relu"]}, "the activations sigmoid, tanh, relu"),
    ],
)
def test_layers_of_onnx_that_do_more(options: dict[str, Any], reason: str) -> None:
    model, _ = onnx_model("LSTM", **options)
    with pytest.raises(ImportRefusal, match=reason):
        fuse_epilogue.compile(model, host(1))
