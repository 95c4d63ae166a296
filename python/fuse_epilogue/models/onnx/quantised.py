"""Operators of ONNX models on quantised numbers, as arithmetic of integers.

Sums of products are of 32 bits; they are scaled, rounded to the nearest integer, halves to even
ones, and clipped once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .dequantised import Dequantised
from .graph import ONNX_DOMAINS, RUNTIME_DOMAIN, Facts, attributes_of, refused
from .integers import Integers, Quantised, Reader, Value

#: Operators of ONNX Runtime that are computed in float32, by their names: the operator, and the
#: number of quantised operands.
_IN_FLOATS = {
    "QLinearAdd": ("Add", 2),
    "QLinearAveragePool": ("AveragePool", 1),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
    "QLinearLeakyRelu": ("LeakyRelu", 1),
    "QLinearMul": ("Mul", 2),
    "QLinearSigmoid": ("Sigmoid", 1),
}
_OWN = {
    **dict.fromkeys(ONNX_DOMAINS, ("ConvInteger", "DynamicQuantizeLinear", "QLinearConv")),
    RUNTIME_DOMAIN: ("QGemm", "QLinearConcat", *_IN_FLOATS),
}
_ENDS = ("DequantizeLinear", "QuantizeLinear", "QLinearMatMul", *_OWN[""], *_OWN[RUNTIME_DOMAIN])


def has_quantised(nodes: Sequence[Any]) -> bool:
    """Return whether one of the nodes is of an operator on quantised numbers."""
    return any(node.op_type in _ENDS for node in nodes)


def with_integers(nodes: Sequence[Any], facts: Facts, results: set[str]) -> list[Any]:
    """Return nodes with operators on quantised numbers written as arithmetic of integers.

    - `nodes`: in an order in which values are made before they are read.
    - `results`: names of the results of the graph. Nodes that no result depends on are left out.
    - Raises ValueError: a node does more than is supported here.
    """
    read = Reader(facts)
    operators: dict[str, Callable[[Any, Reader], list[Any]]] = {
        "ConvInteger": _conv_integer,
        "DynamicQuantizeLinear": _dynamic,
        "QGemm": _gemm,
        "QLinearConcat": _concat,
        "QLinearConv": _conv,
        "QLinearMatMul": _matmul,
        **dict.fromkeys(_IN_FLOATS, _in_floats),
    }
    dequantised = Dequantised(facts)
    made: list[Any] = []
    for node in nodes:
        own = node.domain in (*ONNX_DOMAINS, RUNTIME_DOMAIN) and node.op_type in operators
        made += operators[node.op_type](node, read) if own else dequantised.rewritten(node)
    return _read_only(made, results)


def _read_only(nodes: list[Any], results: set[str]) -> list[Any]:
    """Return the nodes that results depend on."""
    needed, kept = set(results), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(_names_in(node))
    return kept[::-1]


def _names_in(node: Any) -> list[str]:
    """Return the names of the values that a node reads, those in its branches too."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            names += [name for inner in graph.node for name in _names_in(inner)]
            names += [each.name for each in graph.output]
    return names


def _known(node: Any, read: Reader, first: int, axis: int = 0) -> Quantised:
    """Return the operand whose value, scale and zero point are three inputs from a place on."""
    inputs = [*node.input, "", ""][first : first + 3]
    found = read.quantised(inputs, axis)
    if found is None:
        raise refused(node, f"the type or size of '{inputs[0]}', its scale or its zero point")
    return found


def _result(node: Any, read: Reader, place: int) -> Quantised:
    """Return the scale and the zero point of a result, which are inputs from a place on."""
    found = read.quantised([node.input[0], *node.input[place : place + 2]], 0)
    if found is None or found.axis is not None:
        raise refused(node, f"the scale '{node.input[place]}' or its zero point")
    return found


def _scaled(write: Integers, sums: str, factor: Value, to: Quantised) -> list[Any]:
    """Return the nodes of sums that are scaled and rounded."""
    factor = write.compute("Div", factor, to.scale)
    scaled = write.compute("Mul", write.cast(sums, "float32"), factor)
    return write.finish(write.rounded(scaled, to))


def _matmul(node: Any, read: Reader) -> list[Any]:
    """Write QLinearMatMul."""
    write = Integers(node.output[0])
    factors, scales = [], []
    for first, axis in ((0, -2), (3, -1)):
        found = _known(node, read, first, axis)
        rank = read.rank(found.value)
        factors.append(write.name_of(write.widened(found, rank)))
        scales.append(write.along(found.scale, found.axis, rank))
    sums = write.add("MatMul", *factors)
    return _scaled(write, sums, write.compute("Mul", *scales), _result(node, read, 6))


def _conv(node: Any, read: Reader) -> list[Any]:
    """Write QLinearConv."""
    write = Integers(node.output[0])
    x, weights = _known(node, read, 0), _known(node, read, 3)
    rank = read.rank(weights.value)
    if x.axis is not None or rank is None:
        raise refused(node, "an image with several scales, or filters of an unknown rank,")
    factors = [write.name_of(write.widened(x)), write.name_of(write.widened(weights, rank))]
    sums = write.add("Conv", *factors, **attributes_of(node))
    if len(node.input) > 8 and node.input[8]:
        bias = write.along(read.value(node.input[8]), 1, rank)
        sums = write.add("Add", sums, write.name_of(bias))
    axis = None if weights.axis is None else 1
    scale = write.compute("Mul", x.scale, write.along(weights.scale, axis, rank))
    return _scaled(write, sums, scale, _result(node, read, 6))


def _gemm(node: Any, read: Reader) -> list[Any]:
    """Write QGemm of ONNX Runtime."""
    write, attributes = Integers(node.output[0]), attributes_of(node)
    transposed = [attributes.get(name, 0) for name in ("transA", "transB")]
    a, b = _known(node, read, 0), _known(node, read, 3, 0 if transposed[1] else 1)
    if a.axis is not None:
        raise refused(node, "a first factor with several scales")
    factors = [
        write.add("Transpose", write.name_of(wide), perm=[1, 0]) if across else write.name_of(wide)
        for wide, across in zip((write.widened(a), write.widened(b, 2)), transposed, strict=True)
    ]
    sums = write.add("MatMul", *factors)
    optional = [*node.input[6:], "", "", ""]
    if optional[0]:
        sums = write.add("Add", sums, optional[0])
    alpha = np.asarray(attributes.get("alpha", 1.0), np.float32)
    scale = write.compute("Mul", write.compute("Mul", alpha, a.scale), b.scale)
    if optional[1]:
        return _scaled(write, sums, scale, _result(node, read, 7))
    result = write.compute("Mul", write.cast(sums, "float32"), scale)
    return write.finish(write.name_of(result))


def _conv_integer(node: Any, read: Reader) -> list[Any]:
    """Write ConvInteger, for which zero points of filters have one value for each filter."""
    write = Integers(node.output[0])
    names = [*node.input, "", ""][:4]
    wide = []
    for name, zero, axis in ((names[0], names[2], None), (names[1], names[3], 0)):
        value = write.cast(read.value(name), "int32")
        rank = read.rank(read.value(name))
        if zero:
            point = write.cast(read.value(zero), "int32")
            several = not isinstance(point, str) and point.size > 1
            if several and (axis is None or rank is None):
                raise refused(node, f"the zero point '{zero}' with several values")
            if not several and not isinstance(point, str):
                point = point.reshape(())
            value = write.compute("Sub", value, write.along(point, 0 if several else None, rank))
        wide.append(write.name_of(value))
    return write.finish(write.add("Conv", *wide, **attributes_of(node)))


def _dynamic(node: Any, read: Reader) -> list[Any]:
    """Write DynamicQuantizeLinear; an input of zeros has the scale 1, as in ONNX Runtime."""
    outputs = [*node.output, "", ""][:3]
    write = Integers(next(name for name in outputs if name))
    x = node.input[0]
    # Of two operands, TVM's importer makes an array to take the maximum or the minimum of.
    above = write.add("Relu", write.add("ReduceMax", x, keepdims=0))
    below = write.add("Relu", write.add("Neg", write.add("ReduceMin", x, keepdims=0)))
    width = write.add("Add", above, below)
    step = write.add("Div", width, write.constant(255, np.float32))
    is_point = write.add("Equal", width, write.constant(0, np.float32))
    scale = write.add("Where", is_point, write.constant(1, np.float32), step)
    to = Quantised(x, scale, np.zeros((), np.uint8), "uint8")
    point = write.rounded(write.add("Div", below, scale), to)
    result = write.quantised(x, replace(to, zero=point))
    for name, value in zip(outputs, (result, scale, point), strict=True):
        if name:
            write.finish(value, name)
    return write.nodes


def _in_floats(node: Any, read: Reader) -> list[Any]:
    """Write an operator of ONNX Runtime that dequantises, computes in float32, and quantises."""
    operator, count = _IN_FLOATS[node.op_type]
    write, attributes = Integers(node.output[0]), attributes_of(node)
    if attributes.pop("channels_last", 0):
        raise refused(node, "an image whose channels are last (channels_last)")
    operands = []
    for first in range(0, 3 * count, 3):
        found = _known(node, read, first)
        if found.axis is not None:
            raise refused(node, "an operand with several scales")
        operands.append(write.name_of(write.dequantised(found)))
    result = write.add(operator, *operands, **attributes)
    return write.finish(write.quantised(result, _result(node, read, 3 * count)))


def _concat(node: Any, read: Reader) -> list[Any]:
    """Write QLinearConcat of ONNX Runtime, whose result's scale comes first."""
    write = Integers(node.output[0])
    to = read.quantised([node.input[2], *node.input[:2]], 0)
    if to is None or to.axis is not None:
        raise refused(node, f"the scale '{node.input[0]}' or its zero point")
    parts = []
    for first in range(2, len(node.input), 3):
        found = _known(node, read, first)
        if found.axis is not None:
            raise refused(node, "an operand with several scales")
        same = found.same(to.of(found.value))
        parts.append(
            write.name_of(found.value if same else write.quantised(write.dequantised(found), to))
        )
    return write.finish(write.add("Concat", *parts, **attributes_of(node)))
