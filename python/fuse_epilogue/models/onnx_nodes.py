"""Nodes of ONNX models that TVM's importer does not know, or takes for others.

Other nodes take their places before a model is imported. Branches of If and Loop stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .onnx_guards import with_guards_after

#: Attributes of Attention that are read, or say nothing where there is one result.
_READ = frozenset({"scale", "is_causal", "qk_matmul_output_mode", "q_num_heads", "kv_num_heads"})

#: Number of elements up to which a constant may be a shape.
_SMALL = 64


def with_known_nodes(model: Any) -> Any:
    """Return a model without nodes that TVM's importer would refuse or misread.

    Parameters
    ----------
    model : onnx.ModelProto
        Stays as it is; returned itself if there is nothing to change.

    Raises
    ------
    ValueError
        A node of operator Attention does more than is supported here.
    """
    import onnx

    rewrites: dict[str, Callable[[Any, _Facts], list[Any]]] = {
        "Attention": _attention,
        "ConstantOfShape": _scalar,
        "OneHot": _one_hot,
    }
    if not any(_is(node, *rewrites, "IsNaN") for node in model.graph.node):
        return model
    facts = _Facts(model)
    nodes: list[Any] = []
    for node in model.graph.node:
        nodes += rewrites[node.op_type](node, facts) if _is(node, *rewrites) else [node]
    if max(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")) >= 13:
        results = {each.name for each in model.graph.output}
        nodes = with_guards_after(nodes, facts, results)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def _is(node: Any, *names: str) -> bool:
    return node.op_type in names and node.domain in ("", "ai.onnx")


class _Facts:
    """Types and sizes of a model's values, and its constants."""

    def __init__(self, model: Any) -> None:
        import onnx

        self._types: dict[str, Any] = {}
        if any(_is(node, "Attention", "IsNaN", "OneHot") for node in model.graph.node):
            graph = onnx.shape_inference.infer_shapes(_without_weights(model)).graph
            for each in (*graph.value_info, *graph.input, *graph.output):
                self._types[each.name] = each.type.tensor_type
        self._constants = {each.name: each for each in model.graph.initializer}
        for node in model.graph.node:
            if _is(node, "Constant") and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t

    def constant(self, name: str) -> Any:
        """Return a constant of one element at most as an array, None for any other value."""
        import onnx

        found = self._constants.get(name)
        small = found is not None and math.prod(found.dims) <= 1
        return onnx.numpy_helper.to_array(found) if small else None

    def dtype(self, name: str) -> Any:
        """Return the type of a value's elements, of numpy."""
        import onnx

        return onnx.helper.tensor_dtype_to_np_dtype(self._types[name].elem_type)

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Return the sizes of a value, None for those that may differ from call to call."""
        known = self._types.get(name)
        if known is None or not known.HasField("shape"):
            return None
        return tuple(
            size.dim_value if size.HasField("dim_value") else None for size in known.shape.dim
        )


def _without_weights(model: Any) -> Any:
    """Return a model whose constants are inputs too, without the values of the large ones.

    Shapes are inferred from it, for which weights would be copied.
    """
    import onnx

    graph = model.graph
    weights = {each.name: each for each in graph.initializer}
    bare = onnx.ModelProto(ir_version=model.ir_version)
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(each for each in graph.input if each.name not in weights)
    bare.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, each.data_type, each.dims)
        for name, each in weights.items()
    )
    bare.graph.output.extend(graph.output)
    bare.graph.value_info.extend(graph.value_info)
    small = [each for each in graph.initializer if math.prod(each.dims) <= _SMALL]
    bare.graph.initializer.extend(small)
    return bare


def _scalar(node: Any, facts: _Facts) -> list[Any]:
    """Return a constant for a number of no dimensions, which TVM takes for one of one dimension."""
    import onnx

    sizes = facts.constant(node.input[0])
    if sizes is None or sizes.size:
        return [node]
    value = [onnx.numpy_helper.to_array(each.t) for each in node.attribute]
    array = (value[0] if value else np.zeros(1, np.float32)).reshape(())
    return [_constant(node.output[0], array)]


def _one_hot(node: Any, facts: _Facts) -> list[Any]:
    """Return a node and the conversion to the type of its values, which TVM replaces by another."""
    import onnx

    try:
        dtype = facts.dtype(node.input[2])
    except KeyError:  # the type is not known
        return [node]
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.output[0] = f"{node.output[0]} before its type"
    to = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    cast = onnx.helper.make_node("Cast", list(changed.output), list(node.output), to=to)
    return [changed, cast]


def _constant(name: str, array: np.ndarray) -> Any:
    import onnx

    value = onnx.numpy_helper.from_array(array)
    return onnx.helper.make_node("Constant", [], [name], value=value)


class _Writer:
    """Nodes that compute one value step by step."""

    def __init__(self, name: str) -> None:
        self.nodes: list[Any] = []
        self._name = name

    def _fresh(self) -> str:
        return f"{self._name}/step{len(self.nodes)}"

    def constant(self, value: Any, dtype: Any) -> str:
        """Return the name of a new constant."""
        name = self._fresh()
        self.nodes.append(_constant(name, np.asarray(value, dtype)))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of the result of a new node."""
        import onnx

        name = self._fresh()
        self.nodes.append(onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def finish(self, result: str) -> list[Any]:
        """Return the nodes, the result under the name that it had."""
        import onnx

        return [*self.nodes, onnx.helper.make_node("Identity", [result], [self._name])]


def _attention(node: Any, facts: _Facts) -> list[Any]:
    """Write attention as two products and a softmax; a row that its mask leaves no key is zero."""
    import onnx

    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    query, key, value = node.input[:3]
    shapes: list[Any] = [facts.shape(each) for each in (query, key, value)]
    _refuse_further(node, attributes, shapes)
    write, dtype = _Writer(node.output[0]), facts.dtype(query)
    (_, heads, rows, size), (_, groups, keys, _) = shapes[:2]
    if heads != groups:
        key, value = (
            _repeated(write, each, heads, groups, width)
            for each, width in ((key, size), (value, shapes[2][3]))
        )
    factor = attributes.get("scale", 1 / math.sqrt(size))
    products = write.add("MatMul", query, write.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = write.add("Mul", products, write.constant(factor, dtype))
    hidden = write.constant(-math.inf, dtype)
    mask = node.input[3] if len(node.input) > 3 else ""
    is_bool = not mask or facts.dtype(mask).kind == "b"
    if attributes.get("is_causal", 0):
        visible = write.constant(np.tri(rows, keys), bool)
        both = ("And", visible, mask) if is_bool else ("Where", visible, mask, hidden)
        mask = write.add(*both) if mask else visible
    if mask:
        hides = ("Where", mask, scores, hidden) if is_bool else ("Add", scores, mask)
        scores = write.add(*hides)
    result = write.add("MatMul", write.add("Softmax", scores, axis=-1), value)
    if mask:
        shown = _any_shown(write, mask, hidden, is_bool)
        result = write.add("Where", shown, result, write.constant(0, dtype))
    return write.finish(result)


def _refuse_further(node: Any, attributes: dict[str, Any], shapes: list[Any]) -> None:
    """Refuse what attention may do besides, by its name."""
    reason = ""
    further = sorted(name for name in set(attributes) - _READ if attributes[name])
    if further:
        reason = f"the attribute {further[0]}"
    elif any(node.input[4:]):
        reason = "a cache of keys and values"
    elif any(node.output[1:]):
        reason = "more than one result"
    elif any(shape is None or len(shape) != 4 for shape in shapes):
        reason = "an operand that is not known to have 4 dimensions"
    elif any(None in (shape[1], shape[3]) for shape in shapes):
        reason = "a number or a size of heads that is not constant"
    elif attributes.get("is_causal", 0) and None in (shapes[0][2], shapes[1][2]):
        reason = "a causal mask of a size that is not constant"
    if reason:
        raise ValueError(f"operator Attention, '{node.name}': {reason} is not supported")


def _repeated(write: _Writer, value: str, heads: int, groups: int, size: int) -> str:
    """Return keys or values with each head as often as queries have it."""
    wide = write.add("Unsqueeze", value, write.constant([2], np.int64))
    wide = write.add("Expand", wide, write.constant([1, 1, heads // groups, 1, 1], np.int64))
    return write.add("Reshape", wide, write.constant([0, heads, -1, size], np.int64))


def _any_shown(write: _Writer, mask: str, hidden: str, is_bool: bool) -> str:
    """Return for each row whether its mask leaves it a key."""
    import onnx

    shown = mask if is_bool else write.add("Not", write.add("Equal", mask, hidden))
    number = write.add("Cast", shown, to=onnx.TensorProto.INT32)
    most = write.add("ReduceMax", number, write.constant([-1], np.int64), keepdims=1)
    return write.add("Greater", most, write.constant(0, np.int32))
