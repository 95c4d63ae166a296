"""ONNX operators that TVM's importer does not know or reads wrongly, written in others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .graph import Facts, Writer, attributes_of, constant_node, refused


def operator_rewrites() -> dict[str, Callable[[Any, Facts], list[Any]]]:
    """Return functions by the names of operators: nodes in place of a node."""
    return {
        "Celu": _celu,
        "LpNormalization": _normalized,
        "MaxPool": _pooled,
        "Pow": _power,
        "Resize": _resized,
        "RoiAlign": _regions,
    }


def with_whole_constants(nodes: Sequence[Any]) -> list[Any]:
    """Return nodes with each constant as a tensor, which TVM reads alone."""
    types = {"value_float": "f4", "value_floats": "f4", "value_int": "i8", "value_ints": "i8"}
    found = []
    for node in nodes:
        if node.op_type == "Constant" and node.attribute[0].name in types:
            ((name, value),) = attributes_of(node).items()
            node = constant_node(node.output[0], np.asarray(value, types[name]))
        found.append(node)
    return found


def _celu(node: Any, facts: Facts) -> list[Any]:
    alpha, write = attributes_of(node).get("alpha", 1.0), Writer(node.output[0])
    factor = write.constant(alpha, facts.dtype(node.input[0]))
    found = write.add("Elu", write.add("Div", node.input[0], factor))
    return write.finish(write.add("Mul", found, factor))


def _normalized(node: Any, facts: Facts) -> list[Any]:
    attributes, write = attributes_of(node), Writer(node.output[0])
    axis, x = attributes.get("axis", -1), node.input[0]
    name = "ReduceL1" if attributes.get("p", 2) == 1 else "ReduceL2"
    if facts.opset >= 18:
        norm = write.add(name, x, write.constant([axis], np.int64), keepdims=1)
    else:
        norm = write.add(name, x, axes=[axis], keepdims=1)
    zero, one = (write.constant(number, facts.dtype(x)) for number in (0, 1))
    is_zero = write.add("Equal", norm, zero)
    return write.finish(write.add("Div", x, write.add("Where", is_zero, one, norm)))


def _pooled(node: Any, facts: Facts) -> list[Any]:
    """Leave out places of maxima that nothing reads; refuse others."""
    if len(node.output) < 2 or not node.output[1]:
        return [node]
    if facts.is_read(node.output[1]):
        raise refused(node, "the second result, the places of the maxima,")
    changed = _copied(node)
    del changed.output[1:]
    return [changed]


def _power(node: Any, facts: Facts) -> list[Any]:
    """Convert the exponent to the type of the base, which is that of the result."""
    base, exponent = node.input
    try:
        types = [facts.dtype(each) for each in (base, exponent)]
    except KeyError:  # the type is not known
        return [node]
    if types[0] == types[1]:
        return [node]
    import onnx

    write = Writer(node.output[0])

    def cast(value: str, dtype: Any) -> str:
        return write.add("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(dtype))

    if types[0].kind == "f":
        known = facts.array(exponent)
        number = cast(exponent, types[0]) if known is None else write.constant(known, types[0])
        return write.finish(write.add("Pow", base, number))
    return write.finish(cast(write.add("Pow", cast(base, types[1]), exponent), types[0]))


def _regions(node: Any, facts: Facts) -> list[Any]:
    """Move regions by half a pixel of the image: TVM does so before it scales them."""
    attributes = attributes_of(node)
    default = b"half_pixel" if facts.opset >= 16 else b"output_half_pixel"
    scale = attributes.get("spatial_scale", 1.0)
    mode = attributes.get("coordinate_transformation_mode", default)
    if mode != b"half_pixel" or scale == 1:
        return [node]
    write = Writer(node.output[0])
    shift = write.constant(0.5 - 0.5 / scale, facts.dtype(node.input[1]))
    changed = _copied(node)
    changed.input[1] = write.add("Add", node.input[1], shift)
    return [*write.nodes, changed]


def _resized(node: Any, facts: Facts) -> list[Any]:
    """Leave out empty inputs; write what TVM resizes otherwise than ONNX as products."""
    attributes = attributes_of(node)
    names = [*node.input, *[""] * (4 - len(node.input))]
    arrays = [facts.array(name) if name else None for name in names]
    empty = [found is not None and found.size == 0 for found in arrays]
    names = ["" if none else name for name, none in zip(names, empty, strict=True)]
    shape = facts.shape(names[0])
    if _is_known(attributes, arrays[2], shape):
        changed = _copied(node)
        del changed.input[:]
        changed.input.extend(names if names[3] else names[:3])
        return [changed]
    if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise refused(node, "the attribute keep_aspect_ratio_policy")
    sizes = None if shape is None else _resized_axes(attributes, arrays[2:], shape)
    if sizes is None:
        raise refused(node, "resizing an image by a size or a factor that is not constant")
    write, value, rank = Writer(node.output[0]), node.input[0], len(shape or ())
    for axis, by in sizes.items():
        matrix = write.constant(_matrix(attributes, *by), facts.dtype(names[0]))
        order = [*range(rank)]
        order[axis], order[-1] = order[-1], order[axis]
        moved = value if axis == rank - 1 else write.add("Transpose", value, perm=order)
        value = write.add("MatMul", moved, matrix)
        value = value if axis == rank - 1 else write.add("Transpose", value, perm=order)
    return write.finish(value)


def _is_known(attributes: dict[str, Any], scales: Any, shape: Sequence[int | None] | None) -> bool:
    """Return whether TVM resizes an image as ONNX does: by the ratio of the sizes."""
    if any(attributes.get(name) for name in ("antialias", "axes")):
        return False
    if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return False
    if scales is None or scales.size == 0 or shape is None:
        return True
    sizes = [1 if size is None else size for size in shape]
    exact = _is_by_corners(attributes) or all(
        float(scale * size).is_integer() for scale, size in zip(scales, sizes, strict=True)
    )
    return exact and all(scales[:2] == 1) and len(shape) > 2


def _is_by_corners(attributes: dict[str, Any]) -> bool:
    """Return whether corners meet corners: the factors only say what the sizes are."""
    return attributes.get("coordinate_transformation_mode") == b"align_corners"


def _resized_axes(
    attributes: dict[str, Any], numbers: Sequence[Any], shape: Sequence[int | None]
) -> dict[int, tuple[int, str, Any]] | None:
    """Return for each axis that changes its size, and its factor or its new size, by the name.

    - `numbers`: the factors and the sizes; None for what is not constant, or not there.
    - Returns: None if a size or a factor is not known.
    """
    axes = [axis % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    given = [
        (name, array)
        for name, array in zip(("scales", "sizes"), numbers, strict=True)
        if array is not None and array.size
    ]
    if len(given) != 1:
        return None
    name, array = given[0]
    found = {}
    for axis, number in zip(axes, array, strict=True):
        size = shape[axis]
        if number == (1 if name == "scales" else size):
            continue
        if size is None:
            return None
        if name == "scales" and _is_by_corners(attributes):
            found[axis] = (size, "sizes", int(size * number))
        else:
            found[axis] = (size, name, number)
    return found


def _matrix(attributes: dict[str, Any], given: int, name: str, number: Any) -> np.ndarray:
    """Return how an axis is resized: each row what becomes of one element, as ONNX says."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    kept = {key: value for key, value in attributes.items() if key != "axes"}
    rows = np.eye(given, dtype=np.float32)
    scales = np.asarray([1, number], np.float32)
    array = scales if name == "scales" else np.asarray([given, number], np.int64)
    names = ["x", "", "by"] if name == "scales" else ["x", "", "", "by"]
    graph = helper.make_graph(
        [constant_node("by", array), helper.make_node("Resize", names, ["y"], **kept)],
        "axis",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, rows.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    return np.asarray(ReferenceEvaluator(made).run(None, {"x": rows})[0])


def _copied(node: Any) -> Any:
    changed = type(node)()
    changed.CopyFrom(node)
    return changed
