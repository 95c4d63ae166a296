"""Products and convolutions of dequantised numbers in ONNX models, as those of their integers.

    a = DequantizeLinear(p);  b = DequantizeLinear(q);  y = QuantizeLinear(MatMul(a, b))

becomes a sum of 32 bits, which is exact, and which is scaled and rounded once:

    s = MatMul(p - zero of p, q - zero of q)
    y = clip(round(s * (scale of p * scale of q / scale of y)) + zero of y)

A bias that was quantised with the scale of the products is added to the sums. ReLU before
QuantizeLinear, or Clip to what the integers cover, is applied to what is rounded. Where the product
is not quantised again, its sums are scaled to float32. Operators that only move elements, or choose
among them, are applied to the integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .graph import RUNTIME_DOMAIN, Facts, attributes_of, is_node, refused
from .integers import BYTES, Integers, Quantised, Reader, Value

#: Operators whose results are elements of their first input.
_MOVES = frozenset(
    ("Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
)
#: How far the scale of a bias may be from that of the products, as a part of it: a rounding.
_SAME_SCALE = 1e-6


@dataclass(frozen=True)
class _Sums:
    """A value that is sums of 32 bits times a scale, within bounds.

    - `low`, `high`: the bounds, which are not scaled.
    """

    sums: str
    scale: Value
    low: float = -math.inf
    high: float = math.inf


class Dequantised:
    """Rewrites the nodes of a graph, one after the other."""

    def __init__(self, facts: Facts) -> None:
        self._read = Reader(facts)
        self._known: dict[str, Quantised] = {}
        self._sums: dict[str, _Sums] = {}
        self._rewrites: dict[str, Callable[[Any], list[Any]]] = {
            "Clip": self._bounded,
            "Conv": self._product,
            "DequantizeLinear": self._dequantize,
            "Gemm": self._product,
            "MatMul": self._product,
            "QuantizeLinear": self._quantize,
            "Relu": self._bounded,
            **dict.fromkeys(_MOVES, self._moved),
        }

    def rewritten(self, node: Any) -> list[Any]:
        """Return the nodes that replace one; those that come before it were rewritten before."""
        ends = ("DequantizeLinear", "QuantizeLinear")
        own = is_node(node, *self._rewrites) or (
            node.domain == RUNTIME_DOMAIN and node.op_type in ends
        )
        return self._rewrites[node.op_type](node) if own else [node]

    # ---- The ends --------------------------------------------------------------------------------

    def _dequantize(self, node: Any) -> list[Any]:
        attributes = attributes_of(node)
        _refuse_blocks(node, attributes)
        found = self._read.quantised(node.input, attributes.get("axis", 1))
        if found is None:
            return [node]
        rank = self._read.rank(found.value)
        self._known[node.output[0]] = found
        write = Integers(node.output[0])
        # By its name: weights are read as numbers only where there is no product of integers.
        result = write.dequantised(found.of(node.input[0]), rank)
        return write.finish(write.name_of(result))

    def _quantize(self, node: Any) -> list[Any]:
        attributes = attributes_of(node)
        _refuse_blocks(node, attributes)
        dtype = _type_of(attributes.get("output_dtype", 0))
        if dtype is None and not any(node.input[2:]):
            dtype = "uint8"
        to = self._read.quantised(node.input, attributes.get("axis", 1), dtype)
        if to is None or self._read.dtype(node.input[0]) not in ("float32", None):
            return [node]
        source, write = node.input[0], Integers(node.output[0])
        known = self._known.get(source)
        if known is not None and known.same(to):
            return write.finish(write.name_of(known.value))
        if not isinstance(to.value, str):
            return self._quantized_constant(node, to, write)
        sums = self._sums.get(source)
        if sums is None or to.axis is not None or not _is_bounded_by(sums, to):
            return [node]
        floats = write.cast(sums.sums, "float32")
        steps = write.compute("Mul", floats, write.compute("Div", sums.scale, to.scale))
        if sums.low == 0:
            steps = write.add("Relu", write.name_of(steps))
        return write.finish(write.rounded(steps, to))

    def _quantized_constant(self, node: Any, to: Quantised, write: Integers) -> list[Any]:
        """Quantise weights now, if their scales are constant."""
        value, rank = to.value, self._read.rank(to.value)
        if isinstance(value, str) or isinstance(to.scale, str) or isinstance(to.zero, str):
            return [node]
        scale, zero = (write.along(each, to.axis, rank) for each in (to.scale, to.zero))
        ends = np.iinfo(to.dtype)
        rounded = np.clip(np.round(value / scale) + zero, ends.min, ends.max).astype(to.dtype)
        self._read.computed[node.output[0]] = rounded
        return write.finish(write.name_of(rounded))

    # ---- Between the ends ------------------------------------------------------------------------

    def _moved(self, node: Any) -> list[Any]:
        """Apply an operator that moves elements to integers, too."""
        found = self._known.get(node.input[0])
        if found is None or any(node.output[1:]):
            return [node]
        if not isinstance(found.value, str):
            return self._transposed(node, found, found.value)
        if found.axis is not None:
            return [node]
        name = f"{node.output[0]}/integers"
        self._known[node.output[0]] = found.of(name)
        return [node, _renamed(node, [found.value, *node.input[1:]], name)]

    def _transposed(self, node: Any, found: Quantised, weights: np.ndarray) -> list[Any]:
        """Transpose constant weights now, along with the axis of their scales."""
        if node.op_type == "Transpose":
            axes = list(attributes_of(node).get("perm", range(weights.ndim)[::-1]))
            axis = None if found.axis is None else axes.index(found.axis)
            self._known[node.output[0]] = replace(found, value=weights.transpose(axes), axis=axis)
        return [node]

    def _bounded(self, node: Any) -> list[Any]:
        """Remember the bounds of a product."""
        sums = self._sums.get(node.input[0])
        if sums is None:
            return [node]
        low, high = -math.inf, math.inf
        if node.op_type == "Relu":
            low = 0.0
        else:
            attributes = attributes_of(node)
            given = [*node.input[1:], "", ""][:2]
            bounds = [self._read.value(name) if name else None for name in given]
            if any(isinstance(bound, str) for bound in bounds):
                return [node]
            low = attributes.get("min", low) if bounds[0] is None else float(bounds[0])
            high = attributes.get("max", high) if bounds[1] is None else float(bounds[1])
        low, high = max(sums.low, low), min(sums.high, high)
        if low <= high:
            self._sums[node.output[0]] = replace(sums, low=low, high=high)
        return [node]

    # ---- Products --------------------------------------------------------------------------------

    def _product(self, node: Any) -> list[Any]:
        """Write a product or a convolution of dequantised numbers as one of integers."""
        a, b = (self._known.get(name) for name in node.input[:2])
        if a is None or b is None or not _are_factors(node, a, b):
            return [node]
        attributes, write = attributes_of(node), Integers(node.output[0])
        weights = _weights(node, b)
        scale = write.compute("Mul", a.scale, b.scale)
        alpha = attributes.get("alpha", 1.0)
        if alpha != 1.0:
            scale = write.compute("Mul", scale, np.asarray(alpha, np.float32))
        bias = self._bias(node, scale, attributes.get("beta", 1.0))
        exact = bias is not None and not isinstance(bias, str) and bias.dtype == np.int32
        if bias is None or not self._fits(node, a, b, weights, bias if exact else None):
            return [node]
        rank = weights.ndim if node.op_type == "Conv" and weights is not None else None
        left = write.name_of(write.widened(a))
        right = write.name_of(write.widened(b) if weights is None else weights)
        if attributes.get("transA", 0):
            left = write.add("Transpose", left, perm=[1, 0])
        if attributes.get("transB", 0) and weights is None:
            right = write.add("Transpose", right, perm=[1, 0])
        own = attributes if node.op_type == "Conv" else {}
        sums = write.add("Conv" if node.op_type == "Conv" else "MatMul", left, right, **own)
        channels = None if rank is None else 1
        scale, bias = (write.along(each, channels, rank) for each in (scale, bias))
        if exact and np.any(bias):
            sums = write.add("Add", sums, write.name_of(bias))
        result = write.compute("Mul", write.cast(sums, "float32"), scale)
        if isinstance(bias, str) or (not exact and np.any(bias)):
            return write.finish(write.name_of(write.compute("Add", result, bias)))
        self._sums[node.output[0]] = _Sums(sums, scale)
        return write.finish(write.name_of(result))

    def _bias(self, node: Any, scale: Value, beta: float) -> Value | None:
        """Return a bias: integers of 32 bits to add to sums, or numbers to add to the result.

        - Returns: None for a bias that is neither.
        """
        name = node.input[2] if len(node.input) > 2 else ""
        if not name or beta == 0:
            return np.zeros((), np.int32)
        found = self._known.get(name)
        if found is not None and found.dtype == "int32" and found.is_zero() and beta == 1:
            value, own = found.value, found.scale
            constants = not any(isinstance(each, str) for each in (value, own, scale))
            if constants and np.allclose(own, scale, rtol=_SAME_SCALE, atol=0):
                return value
        value = self._read.value(name)
        if isinstance(value, str):
            return value if beta == 1 else None
        return value * np.asarray(beta, np.float32)

    def _fits(
        self, node: Any, a: Quantised, b: Quantised, weights: np.ndarray | None, bias: Any
    ) -> bool:
        """Return whether sums of 32 bits have every result."""
        if weights is None:
            sizes = self._read.facts.shape(node.input[1]) or ()
            at = -1 if attributes_of(node).get("transB", 0) else -2
            depth = sizes[at] if len(sizes) > 1 else None
            most = math.inf if depth is None else float(depth * b.reach)
        else:
            axes = tuple(range(1, weights.ndim)) if node.op_type == "Conv" else -2
            most = float(np.abs(weights.astype("int64")).sum(axes).max(initial=0))
        extra = 0 if bias is None else int(np.abs(bias.astype("int64")).max(initial=0))
        return most * a.reach + extra < 1 << 31


def _refuse_blocks(node: Any, attributes: dict[str, Any]) -> None:
    if attributes.get("block_size", 0):
        raise refused(node, "a scale for each block of an axis (block_size)")


def _type_of(number: int) -> str | None:
    """Return the type that an attribute names, None if it names none."""
    import onnx

    return str(onnx.helper.tensor_dtype_to_np_dtype(number)) if number else None


def _renamed(node: Any, inputs: Sequence[str], output: str) -> Any:
    """Return a node with other inputs and another result."""
    import onnx

    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.input[:], made.output[:]
    made.input.extend(inputs)
    made.output.append(output)
    return made


def _is_bounded_by(sums: _Sums, to: Quantised) -> bool:
    """Return whether bounds, other than a lower one of 0, are beyond those of the integers."""
    if (sums.low in (0, -math.inf)) and sums.high == math.inf:
        return True
    if isinstance(to.scale, str) or isinstance(to.zero, str):
        return False
    ends = np.iinfo(to.dtype)
    bounds = np.array([sums.low, sums.high], np.float32)
    # Rounding keeps the order of numbers.
    low, high = np.round(bounds / to.scale) + to.zero
    return bool((sums.low == 0 or low <= ends.min) and high >= ends.max)


def _are_factors(node: Any, a: Quantised, b: Quantised) -> bool:
    """Return whether the scale of a product is one for all, or one for each column or filter."""
    if a.axis is not None or a.dtype not in BYTES or b.dtype not in BYTES:
        return False
    if isinstance(b.value, str):
        return node.op_type != "Conv" and b.axis is None
    if b.value.ndim < 2:
        return False
    columns = 0 if node.op_type == "Conv" or attributes_of(node).get("transB", 0) else -1
    return b.axis is None or b.axis == columns % b.value.ndim


def _weights(node: Any, b: Quantised) -> np.ndarray | None:
    """Return constant weights without their zero points, None for a value that is not constant."""
    if isinstance(b.value, str):
        return None
    write = Integers("")
    weights = np.asarray(write.widened(b, b.value.ndim))
    return weights.T if attributes_of(node).get("transB", 0) and node.op_type == "Gemm" else weights
