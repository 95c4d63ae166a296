"""Quantised ONNX models, beside ONNX's definition and ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

import fuse_epilogue
from fuse_epilogue.models import ImportRefusal, import_model
from fuse_epilogue.models.pipeline import graph_passes

onnx = pytest.importorskip("onnx", reason="the models are of ONNX: install onnx")
ort = pytest.importorskip("onnxruntime", reason="the oracle is ONNX Runtime: install onnxruntime")

from quantised_models import Layer, convolution, model, with_types  # noqa: E402 - needs onnx

helper = onnx.helper
pytestmark = [pytest.mark.full, pytest.mark.slow]

IMAGE, FILTERS = (1, 6, 9, 8), (10, 6, 3, 3)
AROUND = {"pads": [1, 1, 1, 1]}
LAYERS = {
    "product": Layer("MatMul", (5, 24), (24, 19)),
    "product with zero points": Layer("MatMul", (5, 24), (24, 19), x_zero=131, w_zero=3),
    "signed product by column": Layer(
        "MatMul", (5, 24), (24, 19), "int8", y_type="int8", x_zero=-7, y_zero=-3, per_channel=True
    ),
    "product of unsigned": Layer("MatMul", (5, 24), (24, 19), w_type="uint8", w_zero=120, x_zero=9),
    "batch of products": Layer("MatMul", (2, 3, 5, 24), (24, 19), x_zero=255),
    "dense": Layer("Gemm", (5, 24), (24, 19), x_zero=100, bias="int32"),
    "transposed dense": Layer(
        "Gemm",
        (7, 33),
        (18, 33),
        x_zero=1,
        per_channel=True,
        bias="int32",
        attributes={"transB": 1},
    ),
    "dense of columns": Layer("Gemm", (33, 7), (33, 18), attributes={"transA": 1}, x_zero=8),
    "convolution": Layer("Conv", IMAGE, FILTERS, bias="int32"),
    "padded": Layer("Conv", IMAGE, FILTERS, x_zero=77, bias="int32", attributes=AROUND),
    "padded by filter": Layer(
        "Conv", IMAGE, FILTERS, x_zero=128, per_channel=True, bias="int32", attributes=AROUND
    ),
    "signed and padded": Layer(
        "Conv", IMAGE, FILTERS, "int8", y_type="int8", x_zero=-5, y_zero=4, attributes=AROUND
    ),
    "signed around zero": Layer(
        "Conv", IMAGE, FILTERS, "int8", y_type="int8", y_zero=0, per_channel=True, attributes=AROUND
    ),
    "steps": Layer(
        "Conv",
        IMAGE,
        FILTERS,
        x_zero=3,
        attributes={"pads": [0, 1, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    "depthwise": Layer(
        "Conv",
        IMAGE,
        (6, 1, 3, 3),
        x_zero=90,
        per_channel=True,
        bias="int32",
        attributes={**AROUND, "group": 6},
    ),
    "groups": Layer("Conv", IMAGE, (4, 3, 3, 3), x_zero=90, attributes={**AROUND, "group": 2}),
    "one tap": Layer("Conv", IMAGE, (16, 6, 1, 1), x_zero=90, per_channel=True),
    "sequence": Layer("Conv", (2, 6, 17), (10, 6, 3), x_zero=90, attributes={"pads": [1, 1]}),
    "volume": Layer(
        "Conv", (1, 3, 5, 6, 7), (4, 3, 2, 3, 2), x_zero=9, attributes={"pads": [1, 1, 0, 0, 1, 1]}
    ),
}


def float_products(made: Any) -> list[str]:
    """The products and convolutions that a model computes in floats."""
    mod = ir.transform.Sequential(graph_passes())(import_model(made))
    calls: list[Any] = []
    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, calls.append)
    named = [each for each in calls if isinstance(getattr(each, "op", None), ir.Op)]
    return [
        each.op.name
        for each in named
        if ("conv" in each.op.name or "matmul" in each.op.name) and "float" in str(each.ty.dtype)
    ]


def runtime(made: Any, as_written: bool = False, **arrays: np.ndarray) -> list[np.ndarray]:
    """The results of ONNX Runtime; as it is written, a model is not computed in integers."""
    options = ort.SessionOptions()
    if as_written:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    session = ort.InferenceSession(made.SerializeToString(), options, providers=providers)
    results: list[np.ndarray] = session.run(None, arrays)
    return results


def check(layer: Layer, made: Any, arrays: dict[str, np.ndarray]) -> None:
    """Compare a layer with its definition and with ONNX Runtime."""
    compiled = fuse_epilogue.compile(made, threads=1)
    found = np.asarray(compiled(arrays["x"]))
    expected, near = layer.quantised(arrays)
    names = [each.name for each in compiled.report.functions]
    kernels = [name for name in names if not name.startswith(("transpose", "reshape"))]
    # TVM's importer writes Clip in functions of its own.
    assert len(kernels) == 1 or layer.between == "Clip"
    assert found.dtype == np.dtype(layer.y_type)
    assert near.mean() < 0.05
    difference = np.abs(found.astype(int) - expected)
    assert difference[~near].max() == 0
    assert difference.max() <= 1
    (theirs,) = runtime(made, x=arrays["x"])
    assert np.abs(found.astype(int) - theirs).max() <= 1
    assert not float_products(made)


@pytest.mark.parametrize("name", LAYERS)
def test_products_between_the_ends_are_of_integers(name: str) -> None:
    check(LAYERS[name], *LAYERS[name].with_ends())


ONE_NODE = (
    "product with zero points",
    "signed product by column",
    "transposed dense",
    "dense of columns",
    "padded by filter",
    "depthwise",
    "sequence",
)


@pytest.mark.parametrize("name", ONE_NODE)
def test_products_in_one_node(name: str) -> None:
    check(LAYERS[name], *LAYERS[name].in_one_node())


@pytest.mark.parametrize("between", ["Relu", "Clip"])
@pytest.mark.parametrize("name", ["dense", "padded by filter"])
def test_bounds_before_a_result_is_quantised(name: str, between: str) -> None:
    layer = replace(LAYERS[name], between=between)
    check(layer, *layer.with_ends())


def test_a_bias_of_floats_is_added_to_the_scaled_sums() -> None:
    layer = replace(LAYERS["padded"], bias="float32")
    made, arrays = layer.with_ends()
    found = np.asarray(fuse_epilogue.compile(made, threads=1)(arrays["x"]))
    expected, near = layer.quantised(arrays)
    assert np.array_equal(found[~near], expected[~near])
    assert not float_products(made)


# ---- What stays in floats, or is read in floats --------------------------------------------------


def close(made: Any, as_written: bool = False, **arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a model, which must be those of ONNX Runtime but for the rounding of floats.

    Integers may differ by 1, where a number of float32 is near the middle between two of them.
    """
    compiled = fuse_epilogue.compile(made, threads=1)
    found = compiled(*arrays.values())
    results = [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]
    for one, other in zip(results, runtime(made, as_written, **arrays), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())
        else:
            assert np.abs(one.astype(int) - other).max() <= 1
    return results


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("dense", ("y", "f")),
        ("padded by filter", ("y", "xf")),
        ("padded by filter", ("f",)),
        ("dense", ("y", "wf")),
    ],
)
def test_numbers_that_are_read_besides(name: str, results: tuple[str, ...]) -> None:
    """A product whose result or factors are results of the model, too."""
    made, arrays = LAYERS[name].with_ends(results)
    close(made, x=arrays["x"])


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ("dense", "x_zero"),
        ("padded", "x_zero"),
        ("padded", "x_scale"),
        ("dense", "y_scale"),
        ("padded", "y_zero"),
        ("padded", "b_scale"),
    ],
)
def test_scales_and_zero_points_that_are_arguments(layer: str, name: str) -> None:
    made, arrays = LAYERS[layer].with_ends()
    (weight,) = [each for each in made.graph.initializer if each.name == name]
    made.graph.initializer.remove(weight)
    kind = helper.make_tensor_value_info(name, weight.data_type, list(weight.dims))
    made.graph.input.append(kind)
    # The bias has another scale than the products then, which ONNX Runtime's integers do not see.
    wrong = np.float32(1.7) if name == "b_scale" else 1
    value = np.asarray(arrays[name] * np.asarray(wrong, arrays[name].dtype), arrays[name].dtype)
    close(made, name == "b_scale", x=arrays["x"], **{name: value})


def test_a_bias_with_another_scale_is_added_in_floats() -> None:
    made, arrays = LAYERS["dense"].with_ends()
    for each in made.graph.initializer:
        if each.name == "b_scale":
            wrong = np.asarray(arrays["b_scale"] * np.float32(1.7), "float32")
            each.CopyFrom(onnx.numpy_helper.from_array(wrong, "b_scale"))
    close(made, as_written=True, x=arrays["x"])
    assert not float_products(made)


def test_sums_that_would_not_fit_stay_in_floats() -> None:
    """70,000 products of 255 and 127 are more than an integer of 32 bits has."""
    layer = Layer("MatMul", (1, 70000), (70000, 1), y_zero=0)
    made, arrays = layer.with_ends(("f",))
    arrays["x"][:] = 255
    for each in made.graph.initializer:
        if each.name == "w":
            each.CopyFrom(onnx.numpy_helper.from_array(np.full((70000, 1), 127, "int8"), "w"))
    found = fuse_epilogue.compile(made, threads=1)(arrays["x"])
    expected = 70000 * 255 * 127 * float(arrays["x_scale"]) * float(arrays["w_scale"])
    assert np.asarray(found).item() == pytest.approx(expected, rel=1e-4)
    assert float_products(made) == ["relax.matmul"]


def test_weights_with_a_scale_for_each_row_stay_in_floats() -> None:
    layer = Layer("MatMul", (5, 24), (24, 24))
    made, arrays = layer.with_ends(("f",))
    scales = np.linspace(0.01, 0.02, 24, dtype="float32")
    for each in made.graph.initializer:
        if each.name == "w_scale":
            each.CopyFrom(onnx.numpy_helper.from_array(scales, "w_scale"))
        elif each.name == "w_zero":
            each.CopyFrom(onnx.numpy_helper.from_array(np.zeros(24, "int8"), "w_zero"))
    for node in made.graph.node:
        if node.input[0] == "w":
            node.attribute[0].i = 0
    close(made, x=arrays["x"])
    assert float_products(made) == ["relax.matmul"]


def test_a_product_of_two_arguments() -> None:
    """Both factors have zero points, as scores of attention have."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 256, (2, 12, 12)).astype("uint8") for name in "ab"}
    constants: dict[str, Any] = {"s": np.float32(0.02), "p": np.uint8(100), "t": np.float32(0.3)}
    constants |= {"z": np.uint8(120), "q": np.uint8(7)}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "p"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "s", "q"], ["bf"]),
        helper.make_node("Transpose", ["bf"], ["bt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["af", "bt"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "t", "z"], ["y"]),
    ]
    made = model(nodes, arrays, constants, ["y"])
    close(made, **arrays)
    assert not float_products(made)


@pytest.mark.parametrize("per_row", [False, True])
def test_weights_that_are_transposed(per_row: bool) -> None:
    """As torch exports a linear layer; rows of the weights are columns of the product."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (5, 12)).astype("uint8")
    scale = rng.uniform(0.002, 0.02, 7 if per_row else ()).astype("float32")
    constants: dict[str, Any] = {"s": np.float32(0.02), "p": np.uint8(100), "t": np.float32(0.3)}
    constants |= {"z": np.uint8(120), "w": rng.integers(-128, 128, (7, 12)).astype("int8")}
    constants |= {"ws": scale, "wz": np.zeros(scale.shape, "int8")}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "p"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Transpose", ["wf"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["xf", "wt"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "t", "z"], ["y"]),
    ]
    made = model(nodes, {"x": x}, constants, ["y"])
    close(made, x=x)
    assert not float_products(made)


# ---- Operators between quantised layers ----------------------------------------------------------


def test_a_residual_block() -> None:
    """Two convolutions, what comes in added to what comes out, and a pool of the sum."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 8, 10, 10)).astype("uint8")
    constants: dict[str, Any] = {
        "s": np.float32(0.02),
        "z": np.uint8(110),
        "ws": rng.uniform(0.002, 0.01, 8).astype("float32"),
        "wz": np.zeros(8, "int8"),
        "t": np.float32(0.06),
        "u": np.uint8(128),
    }
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f0"])]
    for at in (1, 2):
        constants[f"w{at}"] = rng.integers(-127, 128, (8, 8, 3, 3)).astype("int8")
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{at}", "ws", "wz"], [f"wf{at}"], axis=0),
            helper.make_node("Conv", [f"f{at - 1}", f"wf{at}"], [f"c{at}"], **AROUND),
            helper.make_node("QuantizeLinear", [f"c{at}", "t", "u"], [f"q{at}"]),
            helper.make_node("DequantizeLinear", [f"q{at}", "t", "u"], [f"f{at}"]),
        ]
    nodes += [
        helper.make_node("Add", ["f2", "f0"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "t", "u"], ["q3"]),
        helper.make_node("DequantizeLinear", ["q3", "t", "u"], ["f3"]),
        helper.make_node("MaxPool", ["f3"], ["m"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["m", "t", "u"], ["y"]),
    ]
    made = model(nodes, {"x": x}, constants, ["y"])
    close(made, x=x)
    assert not float_products(made)


FLOATS = {
    "Add": ("QLinearAdd", 2, {}),
    "Mul": ("QLinearMul", 2, {}),
    "Sigmoid": ("QLinearSigmoid", 1, {}),
    "LeakyRelu": ("QLinearLeakyRelu", 1, {"alpha": 0.1}),
    "GlobalAveragePool": ("QLinearGlobalAveragePool", 1, {}),
    "AveragePool": ("QLinearAveragePool", 1, {"kernel_shape": [2, 2]}),
}


@pytest.mark.parametrize("name", FLOATS)
def test_operators_of_onnx_runtime(name: str) -> None:
    operator, count, attributes = FLOATS[name]
    rng = np.random.default_rng(0)
    arrays = {each: rng.integers(0, 256, (1, 3, 6, 6)).astype("uint8") for each in "ab"[:count]}
    constants: dict[str, Any] = {"s": np.float32(0.02), "z": np.uint8(110)}
    constants |= {"t": np.float32(0.03), "u": np.uint8(100)}
    inputs = [each for one in arrays for each in (one, "s", "z")]
    node = helper.make_node(
        operator, [*inputs, "t", "u"], ["y"], domain="com.microsoft", **attributes
    )
    close(with_types(model([node], arrays, constants, ["y"]), y="uint8"), **arrays)


def test_concatenation_of_onnx_runtime() -> None:
    rng = np.random.default_rng(0)
    arrays = {each: rng.integers(0, 256, (2, 5)).astype("uint8") for each in "ab"}
    constants: dict[str, Any] = {"s": np.float32(0.02), "z": np.uint8(110), "t": np.float32(0.05)}
    inputs = ["s", "z", "a", "s", "z", "b", "t", "z"]
    node = helper.make_node("QLinearConcat", inputs, ["y"], domain="com.microsoft", axis=1)
    close(with_types(model([node], arrays, constants, ["y"]), y="uint8"), **arrays)


@pytest.mark.parametrize("zero", ["", "zero"])
@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger"])
@pytest.mark.parametrize("is_argument", [False, True])
def test_sums_of_integers_are_exact(kind: str, zero: str, is_argument: bool) -> None:
    rng = np.random.default_rng(0)
    is_conv = kind == "ConvInteger"
    x = rng.integers(0, 256, (2, 5, 8, 7) if is_conv else (5, 24)).astype("uint8")
    w = rng.integers(-128, 128, (6, 5, 3, 3) if is_conv else (24, 9)).astype("int8")
    point, arrays, constants = np.uint8(201), {"x": x}, {"w": w}
    if zero:
        (arrays if is_argument else constants)["zero"] = np.asarray(point)
    attributes = AROUND if is_conv else {}
    node = helper.make_node(kind, ["x", "w", zero], ["y"], **attributes)
    found = fuse_epilogue.compile(model([node], arrays, constants, ["y"]), threads=1)(
        *arrays.values()
    )
    shifted, wide = x.astype("int64") - (int(point) if zero else 0), w.astype("int64")
    own = {"pads": [1, 1, 1, 1]}
    expected = convolution(shifted, wide, **own) if is_conv else shifted @ wide
    assert np.asarray(found).dtype == np.int32
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("x", ["normal", "zeros", "positive", "negative", "halves"])
def test_dynamic_quantisation(x: str) -> None:
    rng = np.random.default_rng(0)
    values = {
        "normal": rng.standard_normal((7, 33)),
        "zeros": np.zeros((7, 33)),
        "positive": rng.uniform(3, 4, (7, 33)),
        "negative": -rng.uniform(3, 4, (7, 33)),
        # With the scale 1 and the zero point 0, every other number is in the middle of two.
        "halves": np.arange(0, 255.5, 0.5)[None],
    }[x].astype("float32")
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    made = model([node], {"x": values}, {}, ["y", "scale", "zero"])
    found = [np.asarray(each) for each in fuse_epilogue.compile(made, threads=1)(values)]
    theirs = runtime(made, x=values)
    assert found[1] == theirs[1]
    assert found[2] == theirs[2]
    assert np.array_equal(found[0], theirs[0])


# ---- Refusals ------------------------------------------------------------------------------------


def blocked() -> Any:
    x = np.zeros((4, 32), "int8")
    scales = np.ones((4, 2), "float32")
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], "wide", axis=1, block_size=16)
    return model([node], {"x": x}, {"s": scales}, ["y"], opset=21)


def by_row() -> Any:
    rows = {"x": np.zeros((2, 3, 4), "uint8"), "s": np.ones((2, 3, 1), "float32")}
    constants = {"one": np.float32(1), "z": np.uint8(0), "w": np.zeros((4, 4), "int8")}
    inputs = ["x", "s", "z", "w", "one", "", "one", "z"]
    return model([helper.make_node("QLinearMatMul", inputs, ["y"], "rows")], rows, constants, ["y"])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (blocked, "DequantizeLinear, 'wide': a scale for each block"),
        (by_row, "QLinearMatMul, 'rows': the type or size of 'x', its scale or its zero point"),
    ],
    ids=["blocks", "scales of a batch"],
)
def test_a_refusal_names_the_node_and_the_reason(make: Any, reason: str) -> None:
    with pytest.raises(ImportRefusal, match=reason):
        import_model(make())
