"""Arithmetic of sizes in ONNX models, computed before they are imported.

Exporters compute sizes, pads and counts by nodes, even where they are constant. TVM's importer
wants some of them as constants:

    Shape -> Gather(1) -> TopK's count        Concat -> Reshape -> Slice -> Transpose -> Pad's pads
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import Facts, attributes_of, constant_node, is_node

#: In place of a size that may differ from call to call.
_OPEN = -(2**62)
#: Operators that put sizes in other places; only their first operand may have open ones.
_MOVES = ("Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Identity")
#: Further operators that sizes are computed by.
_COMPUTES = ("Add", "Sub", "Mul", "Div", "Transpose", "ConstantOfShape", "Expand", "Max", "Min")


def with_sizes_computed(nodes: Sequence[Any], facts: Facts) -> list[Any]:
    """Return nodes with constants in place of those that compute sizes.

    - `nodes`: the nodes of a model, in order.
    - `facts`: types, sizes and constants of the values.
    """
    known: dict[str, np.ndarray] = {}
    found: list[Any] = []
    for node in nodes:
        sizes = _sizes(node, facts, known)
        if sizes is not None:
            known[node.output[0]] = sizes
        if sizes is not None and _OPEN not in sizes:
            found.append(constant_node(node.output[0], sizes))
        elif is_node(node, "Resize") and len(node.input) > 3:
            found += _resized(node, known.get(node.input[3]))
        elif is_node(node, "Cast") and sizes is not None:
            found.append(_uncast(node))
        else:
            found.append(node)
    return found


def _sizes(node: Any, facts: Facts, known: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return sizes that a node computes, None for what else it does."""
    if is_node(node, "Shape"):
        return _shape(node, facts)
    if not is_node(node, *_MOVES, *_COMPUTES, "Concat", "Cast"):
        return None
    arrays = {}
    for place, name in enumerate(node.input):
        array = known.get(name)
        array = facts.small(name) if array is None else array
        if array is None or array.dtype != np.int64:
            return None
        is_moved = is_node(node, "Concat", "Cast") or (is_node(node, *_MOVES) and place == 0)
        if _OPEN in array and not is_moved:
            return None
        arrays[name] = array
    return _computed(node, arrays, facts.opset)


def _shape(node: Any, facts: Facts) -> np.ndarray | None:
    shape, part = facts.shape(node.input[0]), attributes_of(node)
    if shape is None:
        return None
    sizes = [_OPEN if size is None else size for size in shape]
    return np.asarray(sizes[part.get("start", 0) : part.get("end", len(sizes))], np.int64)


def _computed(node: Any, arrays: dict[str, np.ndarray], opset: int) -> np.ndarray | None:
    """Return what ONNX's reference computes, None if these are not integers of 64 bits."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.INT64, array.shape)
        for name, array in arrays.items()
    ]
    results = [onnx.ValueInfoProto(name=node.output[0])]
    graph = helper.make_graph([node], "sizes", inputs, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    (found,) = ReferenceEvaluator(made).run(None, arrays)
    found = np.asarray(found)
    return found if found.dtype == np.int64 else None


def _uncast(node: Any) -> Any:
    """Return sizes as they are: TVM makes an array of those that are converted."""
    changed = type(node)()
    changed.CopyFrom(node)
    changed.op_type = "Identity"
    del changed.attribute[:]
    return changed


def _resized(node: Any, sizes: np.ndarray | None) -> list[Any]:
    """Return a resizing to constants; those of the batch and the channels are not read."""
    if sizes is None or _OPEN in (sizes if attributes_of(node).get("axes") else sizes[2:]):
        return [node]
    changed = type(node)()
    changed.CopyFrom(node)
    changed.input[3] = f"{node.output[0]}/sizes"
    return [constant_node(changed.input[3], np.where(sizes == _OPEN, 1, sizes)), changed]
