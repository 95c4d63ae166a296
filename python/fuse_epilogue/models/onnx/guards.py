"""Softmax with a guard against rows without any key, as torch's exporters write attention to ONNX.

A row of a softmax is NaN as a whole or not at all, and the guard makes zeros of it:

    p = Softmax(s);  w = Where(IsNaN(p), 0, p);  o = MatMul(w, v)

The same guard after the product leaves products and softmax to one kernel:

    r = MatMul(p, v);  o = Where(IsNaN(r), ReduceSum(Where(Abs(v) < inf, 0, NaN), -2), r)

The sum is what zeros times `v` add up to: zero, or NaN where `v` has an infinity or a NaN. Where
that makes NaN of `r`, it is NaN before the guard moves too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def with_guards_after(nodes: Sequence[Any], facts: Any, results: set[str]) -> list[Any]:
    """Return nodes with the guards of softmax after the product that reads them.

    - `nodes`: nodes of an opset from 13 on.
    - `facts`: types, sizes and constants of the values.
    - `results`: names of the results of the graph.
    """
    makers = {name: node for node in nodes for name in node.output}
    readers: dict[str, list[Any]] = {name: [] for name in makers}
    for node in nodes:
        for name in set(node.input):
            readers.setdefault(name, []).append(node)
    done: dict[str, list[Any]] = {}
    for node in nodes:
        if node.op_type != "MatMul" or not _is_matrix(node.input[1], facts):
            continue
        guard: Any = makers.get(node.input[0])
        share = None if guard is None else _guarded(guard, makers, facts)
        if share is None:
            continue
        counts = {share: 2, guard.input[0]: 1, guard.output[0]: 1}
        alone = all(len(readers[name]) == count for name, count in counts.items())
        if alone and not results & set(counts):
            done[node.output[0]] = _after(share, node.input[1], node.output[0])
    return [each for node in nodes for each in done.get(node.output[0], [node])]


def _guarded(node: Any, makers: dict[str, Any], facts: Any) -> str | None:
    """Return the softmax that a node makes zeros of where it is NaN, None if it is another."""
    if node.op_type != "Where":
        return None
    test, zero, share = makers.get(node.input[0]), node.input[1], makers.get(node.input[2])
    if test is None or share is None or test.op_type != "IsNaN":
        return None
    number = facts.constant(zero)
    if number is None or number.size != 1 or number.item() != 0:
        return None
    axes = [each.i for each in share.attribute if each.name == "axis"]
    is_softmax = share.op_type == "Softmax" and (not axes or axes == [-1])
    return node.input[2] if is_softmax and test.input[0] == node.input[2] else None


def _is_matrix(name: str, facts: Any) -> bool:
    """Return whether a value is one of float32 with two dimensions or more."""
    shape = facts.shape(name)
    return shape is not None and len(shape) > 1 and facts.dtype(name) == np.float32


def _after(share: str, value: str, result: str) -> list[Any]:
    """Return nodes for a product, and for its rows that are NaN."""
    import onnx

    def constant(name: str, array: Any) -> Any:
        tensor = onnx.numpy_helper.from_array(array)
        return onnx.helper.make_node("Constant", [], [f"{result}/{name}"], value=tensor)

    def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
        names = [own.get(name, f"{result}/{name}") for name in inputs.split()]
        place = own.get(output, f"{result}/{output}")
        return onnx.helper.make_node(operator, names, [place], **attributes)

    own = {"share": share, "value": value, "result": result}
    return [
        constant("infinity", np.array(np.inf, np.float32)),
        constant("zero", np.array(0, np.float32)),
        constant("nan", np.array(np.nan, np.float32)),
        constant("axes", np.array([-2], np.int64)),
        node("MatMul", "share value", "product"),
        node("Abs", "value", "size"),
        node("Less", "size infinity", "finite"),
        node("Where", "finite zero nan", "nothing"),
        node("ReduceSum", "nothing axes", "total", keepdims=1),
        node("IsNaN", "product", "test"),
        node("Where", "test total product", "result"),
    ]
