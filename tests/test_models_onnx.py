"""Nodes of ONNX models that are written in others first, beside ONNX's own reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_epilogue
from fuse_epilogue.models import ImportRefusal, import_model

onnx = pytest.importorskip("onnx", reason="the models are of ONNX: install onnx")
pytest.importorskip("onnx.reference")
helper = onnx.helper
pytestmark = [pytest.mark.full, pytest.mark.slow]

ROWS, KEYS, SIZE = 5, 7, 8
SHAPES = {"q": (2, 4, ROWS, SIZE), "k": (2, 4, KEYS, SIZE), "v": (2, 4, KEYS, SIZE)}
VISIBLE = np.random.default_rng(1).random((2, 1, ROWS, KEYS)) < 0.6
VISIBLE[0, 0, 2] = False  # no key
BIAS = np.where(VISIBLE, np.float32(0.5), np.float32(-np.inf))


def model(nodes: list[Any], opset: int, results: int = 1, **inputs: Any) -> Any:
    """A model of nodes, the last of which has the result."""
    typed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=each) for each in nodes[-1].output[:results]]
    graph = helper.make_graph(nodes, "nodes", typed, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def drawn(**shapes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def attention(mask: Any = None, groups: int = 4, **attributes: Any) -> tuple[Any, dict[str, Any]]:
    """Attention in one node, and its arguments."""
    own = {name: (2, groups, KEYS, SIZE) for name in "kv"}
    arrays = drawn(**{**SHAPES, **own})
    if mask is not None:
        arrays["mask"] = mask
    node = helper.make_node("Attention", list(arrays), ["o"], name="mixes", **attributes)
    return model([node], 23, **arrays), arrays


def near(found: Any, made: Any, arrays: dict[str, Any]) -> None:
    (expected,) = onnx.reference.ReferenceEvaluator(made).run(None, arrays)
    assert np.asarray(found).shape == expected.shape
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=2e-6)


ATTENTION = {
    "no mask": {},
    "scale": {"scale": 0.3},
    "causal": {"is_causal": 1},
    "bools": {"mask": VISIBLE},
    "bias": {"mask": BIAS},
    "bools of rows and keys": {"mask": VISIBLE[1, 0]},
    "causal bools": {"mask": VISIBLE, "is_causal": 1},
    "causal bias": {"mask": BIAS, "is_causal": 1},
    "finite bias": {"mask": np.where(BIAS > 0, BIAS, np.float32(-3))},
    "groups": {"groups": 2, "mask": VISIBLE},
    "one head of keys": {"groups": 1},
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_function(name: str) -> None:
    made, arrays = attention(**ATTENTION[name])
    before = made.SerializeToString()
    compiled = fuse_epilogue.compile(made, threads=1)
    near(compiled(*arrays.values()), made, arrays)
    assert made.SerializeToString() == before
    assert [each.kind for each in compiled.report.functions].count("attention") == 1


UNGUARDED = ("one instead of zero", "unknown number", "over queries")


def guarded(change: str = "") -> tuple[Any, dict[str, Any]]:
    """Attention as torch's exporters write it; `change` says what is otherwise."""
    arrays = drawn(**SHAPES) | {"bias": BIAS}
    if change == "wild":
        arrays["v"][0, 1, 3, 4] = np.inf
        arrays["v"][1, 2, 0, 1] = np.nan
        arrays["q"][1, 0, 1, 1] = np.nan
        arrays["k"][1, 3, 2, 0] = np.inf
    if change == "unknown number":
        arrays["number"] = np.zeros((), np.float32)
    number = 1.0 if change == "one instead of zero" else 0.0
    zero = onnx.numpy_helper.from_array(np.array(number, np.float32))
    axis = 2 if change == "over queries" else -1
    nodes = [
        helper.make_node("Identity", ["number"], ["zero"])
        if change == "unknown number"
        else helper.make_node("Constant", [], ["zero"], value=zero),
        helper.make_node("Transpose", ["k"], ["transposed"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "transposed"], ["s"]),
        helper.make_node("Add", ["s", "bias"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=axis),
        helper.make_node("IsNaN", ["p"], ["none"]),
        helper.make_node("Where", ["none", "zero", "p"], ["w"]),
        helper.make_node("MatMul", ["w", "v"], ["o"]),
    ]
    return model(nodes, 18, **arrays), arrays


@pytest.mark.parametrize("change", ["", "wild", *UNGUARDED])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_guard_against_rows_without_keys(change: str) -> None:
    made, arrays = guarded(change)
    compiled = fuse_epilogue.compile(made, threads=1)
    near(compiled(*arrays.values()), made, arrays)
    count = [each.kind for each in compiled.report.functions].count("attention")
    assert count == (0 if change in UNGUARDED else 1)


def test_a_mask_that_is_a_weight() -> None:
    made, arrays = attention(VISIBLE)
    mask = onnx.numpy_helper.from_array(arrays.pop("mask"), "mask")
    made.graph.initializer.append(mask)
    del made.graph.input[3]
    near(fuse_epilogue.compile(made, threads=1)(*arrays.values()), made, arrays)


def test_an_operator_that_onnx_defines_by_others() -> None:
    arrays = drawn(x=(3, 5))
    made = model([helper.make_node("Swish", ["x"], ["y"], alpha=0.7)], 24, **arrays)
    near(fuse_epilogue.compile(made, threads=1)(arrays["x"]), made, arrays)


def test_a_function_of_the_model_is_inlined() -> None:
    arrays = drawn(x=(3, 5))
    made = model([helper.make_node("Neg", ["x"], ["y"])], 20, **arrays)
    made.graph.node[0].CopyFrom(helper.make_node("Twice", ["x"], ["y"], domain="own"))
    double = helper.make_node("Add", ["a", "a"], ["b"])
    opsets = [helper.make_opsetid("", 20)]
    made.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], [double], opsets))
    made.opset_import.append(helper.make_opsetid("own", 1))
    near(fuse_epilogue.compile(made, threads=1)(arrays["x"]), made, arrays)


def with_cache() -> Any:
    arrays = drawn(**SHAPES, past_k=(2, 4, 3, SIZE), past_v=(2, 4, 3, SIZE))
    inputs = ["q", "k", "v", "", "past_k", "past_v"]
    node = helper.make_node("Attention", inputs, ["o", "keys", "values"], name="mixes")
    return model([node], 23, 3, **arrays)


def of_rows() -> Any:
    arrays = drawn(q=(2, ROWS, 32), k=(2, KEYS, 32), v=(2, KEYS, 32))
    node = helper.make_node(
        "Attention", list(arrays), ["o"], name="mixes", q_num_heads=4, kv_num_heads=4
    )
    return model([node], 23, **arrays)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: attention(softcap=2.0)[0], "the attribute softcap"),
        (with_cache, "a cache of keys and values"),
        (of_rows, "an operand that is not known to have 4 dimensions"),
    ],
    ids=["soft-cap", "cache", "rows"],
)
def test_what_attention_does_besides_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(ImportRefusal, match=f"Attention, 'mixes': {reason} is not supported"):
        import_model(make())


@pytest.mark.parametrize("value", [None, np.full(1, 3, np.int64)], ids=["zero", "three"])
@pytest.mark.parametrize("sizes", [(), (2,), (2, 3)])
def test_constants_of_a_shape(sizes: tuple[int, ...], value: Any) -> None:
    """One without dimensions is a number, which exporters of torch write so."""
    kind = {} if value is None else {"value": onnx.numpy_helper.from_array(value)}
    shape = onnx.numpy_helper.from_array(np.array(sizes, np.int64))
    nodes = [
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("ConstantOfShape", ["shape"], ["c"], **kind),
        helper.make_node("Cast", ["c"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    arrays = drawn(x=(2, 3)) if sizes != (2,) else drawn(x=(3, 2))
    made = model(nodes, 17, **arrays)
    near(fuse_epilogue.compile(made, threads=1)(*arrays.values()), made, arrays)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_one_hot_has_the_type_of_its_values(dtype: str) -> None:
    depth, values = np.array(5, np.int64), np.array([2, 3], dtype)
    constants = {"depth": depth, "values": values}
    nodes = [
        *(
            helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
            for name, array in constants.items()
        ),
        helper.make_node("OneHot", ["x", "depth", "values"], ["y"], axis=0),
    ]
    arrays = {"x": np.array([0, 4, 2, -1], np.int64)}
    made = model(nodes, 17, **arrays)
    result = fuse_epilogue.compile(made, threads=1)(*arrays.values())
    assert result.dtype == np.dtype(dtype)
    near(result, made, arrays)


IMAGE = (1, 2, 7, 6)
#: Operators that are written in others: a node, what it reads, constants among it.
WRITTEN = {
    "celu": ("Celu", {"x": (3, 40)}, {}, {"alpha": 2.0}),
    "norm": ("LpNormalization", {"x": (3, 4)}, {}, {"axis": 0}),
    "hyperbolic sine": ("Sinh", {"x": (3, 40)}, {}, {}),
    "hyperbolic cosine": ("Cosh", {"x": (3, 40)}, {}, {}),
    "whole exponent": ("Pow", {"x": (3, 4)}, {"p": np.array(2, np.int64)}, {}),
    "exponents": ("Pow", {"x": (3, 4)}, {"p": np.array([0, 1, 2, 3], np.int32)}, {}),
    "regions": (
        "RoiAlign",
        {"x": (1, 2, 10, 10)},
        {"r": np.array([[0, 0, 9, 9], [4, 4, 9, 7]], np.float32), "i": np.zeros(2, np.int64)},
        {"output_height": 3, "output_width": 3, "spatial_scale": 0.5, "sampling_ratio": 2},
    ),
}
NONE = np.zeros(0, np.float32)
HALF_MORE = np.array([1, 1, 1.5, 0.6], np.float32)
SMALLER = np.array([1, 2, 3, 4], np.int64)
#: Images that are resized by factors or to sizes.
RESIZED = {
    "no factors": ({"r": NONE, "s": NONE, "z": SMALLER}, {"mode": "linear"}),
    "a factor and a half": ({"": NONE, "s": HALF_MORE}, {"mode": "linear"}),
    "nearest": ({"": NONE, "s": HALF_MORE}, {"mode": "nearest"}),
    "smoothed": ({"": NONE, "s": NONE, "z": SMALLER}, {"mode": "linear", "antialias": 1}),
    "axes": (
        {"": NONE, "s": np.array([0.5, 0.7], np.float32)},
        {"mode": "cubic", "antialias": 1, "axes": [3, 2]},
    ),
    "channels": ({"": NONE, "s": np.array([1, 2, 1, 1], np.float32)}, {"mode": "linear"}),
}
WRITTEN |= {
    f"resize, {name}": ("Resize", {"x": IMAGE}, constants, attributes)
    for name, (constants, attributes) in RESIZED.items()
}


@pytest.mark.parametrize("name", WRITTEN)
def test_operators_that_are_written_in_others(name: str) -> None:
    operator, shapes, constants, attributes = WRITTEN[name]
    nodes = [
        helper.make_node("Constant", [], [key], value=onnx.numpy_helper.from_array(array))
        for key, array in constants.items()
        if key
    ]
    inputs = [*shapes, *constants]
    nodes.append(helper.make_node(operator, inputs, ["y"], **attributes))
    arrays = drawn(**shapes)
    made = model(nodes, 18, **arrays)
    near(fuse_epilogue.compile(made, threads=1)(*arrays.values()), made, arrays)


def test_constants_that_are_no_tensors() -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=2.0),
        helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0]),
        helper.make_node("Constant", [], ["c"], value_ints=[1, 2]),
        helper.make_node("Cast", ["c"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Sum", ["x", "a", "b", "f"], ["y"]),
    ]
    arrays = drawn(x=(2, 2))
    made = model(nodes, 17, **arrays)
    near(fuse_epilogue.compile(made, threads=1)(*arrays.values()), made, arrays)


def test_places_of_maxima() -> None:
    """They may be there, but not be read."""
    arrays = drawn(x=IMAGE)
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2])
    made = model([node], 17, 1, **arrays)
    near(fuse_epilogue.compile(made, threads=1)(*arrays.values()), made, arrays)
    with pytest.raises(ImportRefusal, match="MaxPool, 'y': the second result, the places of"):
        import_model(model([node], 17, 2, **arrays))


def test_an_image_of_its_own_proportions_is_refused() -> None:
    sizes = onnx.numpy_helper.from_array(np.array([4, 9], np.int64))
    attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "mode": "linear"}
    nodes = [
        helper.make_node("Constant", [], ["z"], value=sizes),
        helper.make_node("Resize", ["x", "", "", "z"], ["y"], **attributes),
    ]
    with pytest.raises(ImportRefusal, match="Resize, 'y': the attribute keep_aspect_ratio_policy"):
        import_model(model(nodes, 18, **drawn(x=IMAGE)))


def resized_to_another(axes: list[int], **attributes: Any) -> Any:
    """A model that resizes an image to the size of another one, whose width has a name."""
    part = {"start": 2} if axes else {}
    attributes |= {"axes": axes} if axes else {}
    nodes = [
        helper.make_node("Shape", ["z"], ["sizes"], **part),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes),
    ]
    made = model(nodes, 18, **drawn(x=(1, 2, 4, 4), z=(1, 2, 6, 6)))
    made.graph.input[1].type.tensor_type.shape.dim[3].dim_param = "width"
    return made


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ],
)
def test_an_image_is_resized_to_a_size_with_a_name(attributes: dict[str, Any]) -> None:
    made = resized_to_another([], **attributes)
    compiled = fuse_epilogue.compile(made, threads=1)
    for width in (6, 1, 17):
        arrays = drawn(x=(1, 2, 4, 4), z=(1, 2, 6, width))
        near(compiled(*arrays.values()), made, arrays)


def test_axes_of_an_image_are_not_resized_to_a_size_with_a_name() -> None:
    with pytest.raises(ImportRefusal, match="Resize, 'y': resizing an image by a size"):
        import_model(resized_to_another([2, 3]))


def test_a_size_that_depends_on_data_is_refused() -> None:
    arrays = drawn(x=(3, 4))
    made = model([helper.make_node("NonZero", ["x"], ["y"])], 17, **arrays)
    with pytest.raises(ValueError, match="size of 'result0' of the model depends on data"):
        fuse_epilogue.compile(made, threads=1)


def test_sizes_that_nodes_compute_beside_one_that_has_a_name() -> None:
    """A count, rows by their numbers, and the size of an image, as torch's exporters write them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        *(
            helper.make_node("Constant", [], [name], value_ints=value)
            for name, value in (("one", [1]), ("zero", [0]), ("two", [2]), ("hw", [5, 6]))
        ),
        helper.make_node("Gather", ["shape", "one"], ["count"]),
        helper.make_node("TopK", ["x", "count"], ["sorted", "places"], axis=1),
        helper.make_node("Constant", [], ["first"], value_int=0),
        helper.make_node("Constant", [], ["step"], value_int=1),
        helper.make_node("Gather", ["shape", "first"], ["batch"]),
        helper.make_node("Range", ["first", "batch", "step"], ["numbers"]),
        helper.make_node("Gather", ["sorted", "numbers"], ["rows"]),
        helper.make_node("Slice", ["shape", "zero", "two"], ["front"]),
        helper.make_node("Concat", ["front", "hw"], ["sizes"], axis=0),
        helper.make_node("Resize", ["rows", "", "", "sizes"], ["y"], mode="linear"),
    ]
    made = model(nodes, 17, **drawn(x=(3, 2, 4, 4)))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "b"
    compiled = fuse_epilogue.compile(made, threads=1)
    for count in (3, 1):
        arrays = drawn(x=(count, 2, 4, 4))
        near(compiled(*arrays.values()), made, arrays)
