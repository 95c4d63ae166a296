"""Nodes of ONNX models that TVM's importer does not know, or takes for others.

Other nodes take their places before a model is imported. Branches of If and Loop stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .graph import Facts, Writer, attributes_of, constant_node, is_node, opset_of, refused
from .guards import with_guards_after
from .operators import operator_rewrites, with_whole_constants
from .quantised import has_quantised, with_integers
from .sizes import with_sizes_computed

#: Attributes of Attention that are read, or say nothing where there is one result.
_READ = frozenset({"scale", "is_causal", "qk_matmul_output_mode", "q_num_heads", "kv_num_heads"})


def with_known_nodes(model: Any) -> Any:
    """Return a model without nodes that TVM's importer would refuse or misread.

    - `model` (onnx.ModelProto): stays as it is; returned itself if there is nothing to change.
    - Raises ValueError: a node of Attention, or of an operator on quantised numbers, does more than
      is supported here.
    """
    rewrites: dict[str, Callable[[Any, Facts], list[Any]]] = {
        "Attention": _attention,
        "ConstantOfShape": _scalar,
        "OneHot": _one_hot,
        **operator_rewrites(),
    }
    quantised = has_quantised(model.graph.node)
    known = (*rewrites, "Constant", "IsNaN", "Shape")
    if not quantised and not any(is_node(node, *known) for node in model.graph.node):
        return model
    model = _with_nodes(model, with_whole_constants(model.graph.node))
    model = _with_nodes(model, with_sizes_computed(model.graph.node, Facts(model)))
    facts = Facts(model)
    results = {each.name for each in model.graph.output}
    nodes: list[Any] = []
    for node in model.graph.node:
        nodes += rewrites[node.op_type](node, facts) if is_node(node, *rewrites) else [node]
    if quantised:
        nodes = with_integers(nodes, facts, results)
    if opset_of(model) >= 13:
        nodes = with_guards_after(nodes, facts, results)
    return _with_nodes(model, nodes)


def _with_nodes(model: Any, nodes: Sequence[Any]) -> Any:
    """Return a copy of a model with other nodes."""
    changed = type(model)()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def _scalar(node: Any, facts: Facts) -> list[Any]:
    """Return a constant for a number of no dimensions, which TVM takes for one of one dimension."""
    import onnx

    sizes = facts.constant(node.input[0])
    if sizes is None or sizes.size:
        return [node]
    value = [onnx.numpy_helper.to_array(each.t) for each in node.attribute]
    array = (value[0] if value else np.zeros(1, np.float32)).reshape(())
    return [constant_node(node.output[0], array)]


def _one_hot(node: Any, facts: Facts) -> list[Any]:
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


def _attention(node: Any, facts: Facts) -> list[Any]:
    """Write attention as two products and a softmax; a row that its mask leaves no key is zero."""
    attributes = attributes_of(node)
    query, key, value = node.input[:3]
    shapes: list[Any] = [facts.shape(each) for each in (query, key, value)]
    _refuse_further(node, attributes, shapes)
    write, dtype = Writer(node.output[0]), facts.dtype(query)
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
        raise refused(node, reason)


def _repeated(write: Writer, value: str, heads: int, groups: int, size: int) -> str:
    """Return keys or values with each head as often as queries have it."""
    wide = write.add("Unsqueeze", value, write.constant([2], np.int64))
    wide = write.add("Expand", wide, write.constant([1, 1, heads // groups, 1, 1], np.int64))
    return write.add("Reshape", wide, write.constant([0, heads, -1, size], np.int64))


def _any_shown(write: Writer, mask: str, hidden: str, is_bool: bool) -> str:
    """Return for each row whether its mask leaves it a key."""
    import onnx

    shown = mask if is_bool else write.add("Not", write.add("Equal", mask, hidden))
    number = write.add("Cast", shown, to=onnx.TensorProto.INT32)
    most = write.add("ReduceMax", number, write.constant([-1], np.int64), keepdims=1)
    return write.add("Greater", most, write.constant(0, np.int32))
