"""Builds the ONNX graph of a drawn module, by the definitions of ONNX's own operators.

It knows nothing of TVM. Integer operators that ONNX Runtime lacks in a type run in a wider one,
which gives the same for the numbers of these modules, none of which wraps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .spec import Module, Node, is_float

OPSET = 20
_TYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def graph_of(module: Module) -> onnx.ModelProto:
    """Return the model of a module, checked by ONNX."""
    graph = _Graph()
    names = [f"p{number}" for number in range(len(module.parameters))]
    inputs = [
        helper.make_tensor_value_info(name, _TYPES[each.value.dtype], each.value.shape)
        for name, each in zip(names, module.parameters, strict=True)
    ]
    for node in module.nodes:
        types = [module.value(number).dtype for number in node.args]
        names.append(graph.convert(node, [names[number] for number in node.args], types))
    outputs = []
    for place, number in enumerate(module.outputs):
        value = module.value(number)
        graph.node("Identity", [names[number]], name=f"out{place}")
        outputs.append(
            helper.make_tensor_value_info(f"out{place}", _TYPES[value.dtype], value.shape)
        )
    made = helper.make_graph(graph.nodes, "drawn", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes and constants, as they are added."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: list[str], name: str = "", **attrs: Any) -> str:
        """Add a node with one output; return the output's name."""
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def constant(self, value: Any, dtype: str) -> str:
        """Add a constant; return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def cast(self, name: str, dtype: str) -> str:
        """Convert a value."""
        return self.node("Cast", [name], to=_TYPES[dtype])

    def through(self, op: str, inputs: list[str], dtype: str, wide: str, **attrs: Any) -> str:
        """Add a node whose arguments and result are computed in a wider type."""
        if dtype == wide:
            return self.node(op, inputs, **attrs)
        widened = [self.cast(each, wide) for each in inputs]
        return self.cast(self.node(op, widened, **attrs), dtype)

    # ---- Operators -------------------------------------------------------------------------------

    def convert(self, node: Node, args: list[str], types: list[str]) -> str:
        """Add what a node computes; return the name of its result."""
        name, dtype = node.op, node.value.dtype
        if name.endswith("_literal"):
            literal = self.constant(node.attrs["literal"], dtype)
            args = [literal, args[0]] if node.attrs["left"] else [args[0], literal]
            name = name.removesuffix("_literal")
        if name in _BINARY:
            return self.through(_BINARY[name], args, dtype, _wide(dtype))
        if name in _MOVES:
            return getattr(self, f"_{name}")(node, args)
        return getattr(self, f"_{name}")(node, args, types)

    def _matmul(self, node: Node, args: list[str], types: list[str]) -> str:
        wide = node.value.dtype
        x, y = (self.cast(arg, wide) for arg in args)
        if node.attrs["transposed"]:
            ndim = node.attrs["ndim"]
            y = self.node("Transpose", [y], perm=[*range(ndim - 2), ndim - 1, ndim - 2])
        return self.node("MatMul", [x, y])

    def _conv(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype, attrs = node.value.dtype, node.attrs
        options = {
            "strides": attrs["strides"],
            "pads": attrs["padding"] * 2,
            "dilations": attrs["dilation"],
            "group": attrs["groups"],
        }
        # Whole numbers are exact in float32 as far as they go here, and ONNX Runtime has no other.
        wide = dtype if is_float(dtype) else "float32"
        if not is_float(dtype) and node.value.bound > 2**24:
            raise NotImplementedError("a convolution of integers that float32 does not hold")
        if dtype == "float64":
            raise NotImplementedError("a convolution in float64")
        arguments = [self.cast(arg, wide) for arg in args]
        return self.cast(self.node("Conv", arguments, **options), dtype)

    def _pool(self, op: str, node: Node, args: list[str], **more: int) -> str:
        dtype, attrs = node.value.dtype, node.attrs
        options = {"kernel_shape": attrs["kernel"], "strides": attrs["strides"]}
        pads = attrs["padding"] * 2
        wide = dtype if dtype in ("float32", "float16") else "float64"
        if op == "AveragePool" and dtype == "float64":
            raise NotImplementedError("a mean of windows in float64")
        return self.through(op, args, dtype, wide, pads=pads, **options, **more)

    def _max_pool(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._pool("MaxPool", node, args)

    def _avg_pool(self, node: Node, args: list[str], types: list[str]) -> str:
        include = int(node.attrs["include"])
        return self._pool("AveragePool", node, args, count_include_pad=include)

    def _reduced(self, op: str, node: Node, args: list[str]) -> str:
        dtype = node.value.dtype
        axes = self.constant(node.attrs["axes"], "int64")
        keep = int(node.attrs["keepdims"])
        wide = dtype if is_float(dtype) else "int64"
        value = args[0] if dtype == wide else self.cast(args[0], wide)
        value = self.node(op, [value, axes], keepdims=keep)
        return value if dtype == wide else self.cast(value, dtype)

    def _sum(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._reduced("ReduceSum", node, args)

    def _mean(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._reduced("ReduceMean", node, args)

    def _max(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._reduced("ReduceMax", node, args)

    def _min(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._reduced("ReduceMin", node, args)

    def _prod(self, node: Node, args: list[str], types: list[str]) -> str:
        if node.value.dtype == "float64":
            raise NotImplementedError("a product of an axis in float64")
        return self._reduced("ReduceProd", node, args)

    def _relu(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype = node.value.dtype
        return self.through("Max", [args[0], self.constant(0, dtype)], dtype, _wide(dtype))

    def _negative(self, node: Node, args: list[str], types: list[str]) -> str:
        return self.through("Neg", args, node.value.dtype, _wide(node.value.dtype))

    def _abs(self, node: Node, args: list[str], types: list[str]) -> str:
        return self.through("Abs", args, node.value.dtype, _wide(node.value.dtype))

    def _clip(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype, attrs = node.value.dtype, node.attrs
        low, high = self.constant(attrs["low"], dtype), self.constant(attrs["high"], dtype)
        return self.through(
            "Min", [self.through("Max", [args[0], low], dtype, _wide(dtype)), high], dtype,
            _wide(dtype),
        )  # fmt: skip

    def _sigmoid(self, node: Node, args: list[str], types: list[str]) -> str:
        return self.node("Sigmoid", args)

    def _tanh(self, node: Node, args: list[str], types: list[str]) -> str:
        return self.node("Tanh", args)

    def _silu(self, node: Node, args: list[str], types: list[str]) -> str:
        return self.node("Mul", [args[0], self.node("Sigmoid", args)])

    def _gelu(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype = node.value.dtype
        if dtype == "float64":
            raise NotImplementedError("GELU in float64")
        return self.node("Gelu", args)

    def _where(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype = node.value.dtype
        wide = dtype if dtype in ("float32", "float64", "float16") else _wide(dtype)
        if dtype == wide:
            return self.node("Where", args)
        chosen = self.node("Where", [args[0], *(self.cast(arg, wide) for arg in args[1:])])
        return self.cast(chosen, dtype)

    def _compared(self, op: str, args: list[str], dtype: str) -> str:
        wide = _wide(dtype)
        if wide != dtype:
            args = [self.cast(arg, wide) for arg in args]
        return self.node(op, args)

    def _greater(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._compared("Greater", args, types[0])

    def _less_equal(self, node: Node, args: list[str], types: list[str]) -> str:
        return self._compared("LessOrEqual", args, types[0])

    def _cast(self, node: Node, args: list[str], types: list[str]) -> str:
        return self.cast(args[0], node.value.dtype)

    def _floor_divided(self, x: str, y: str, dtype: str) -> str:
        """Return the quotient rounded down: exact in float64 for integers of 32 bits."""
        quotient = self.node("Div", [self.cast(x, "float64"), self.cast(y, "float64")])
        return self.cast(self.node("Floor", [quotient]), dtype)

    def _right_shift(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype = node.value.dtype
        divisor = self.constant(2 ** node.attrs["bits"], dtype)
        return self._floor_divided(args[0], divisor, dtype)

    # ---- Guards ----------------------------------------------------------------------------------

    def _nonzero(self, divisor: str, dtype: str) -> tuple[str, str]:
        """Return where a divisor is not zero, and the divisor with ones in the place of zeros."""
        zero, one = self.constant(0, dtype), self.constant(1, dtype)
        defined = self.node("Not", [self.node("Equal", [divisor, zero])])
        return defined, self.node("Where", [defined, divisor, one])

    def _guarded_where(self, node: Node, args: list[str], types: list[str]) -> str:
        dtype = node.value.dtype
        defined, safe = self._nonzero(args[1], dtype)
        return self.node("Where", [defined, self._floor_divided(args[0], safe, dtype), args[2]])

    def _guarded_divide(self, node: Node, args: list[str], types: list[str]) -> str:
        defined, safe = self._nonzero(args[1], "int32")
        quotient = self.node("Div", [self.constant(1000, "float64"), self.cast(safe, "float64")])
        # To an integer is towards zero.
        return self._guarded(node, args[0], defined, self.cast(quotient, "int64"))

    def _guarded_gather(self, node: Node, args: list[str], types: list[str]) -> str:
        index, table = args[1], args[2]
        count = self.node("Cast", [self.node("Shape", [table])], to=_TYPES["int32"])
        zero = self.constant(0, "int32")
        defined = self.node(
            "And",
            [self.node("GreaterOrEqual", [index, zero]), self.node("Less", [index, count])],
        )
        safe = self.node("Where", [defined, index, zero])
        return self._guarded(node, args[0], defined, self.node("Gather", [table, safe]))

    def _guarded_short(self, node: Node, args: list[str], types: list[str]) -> str:
        extent, length = node.value.shape[node.attrs["axis"]], node.attrs["length"]
        line = np.arange(extent)
        places = self.constant(np.where(line < length, line, 0), "int64")
        operand = self.node("Gather", [args[1], places])
        return self._guarded(node, args[0], self.constant(line < length, "bool"), operand)

    def _guarded(self, node: Node, x: str, defined: str, operand: str) -> str:
        attrs, dtype = node.attrs, node.value.dtype
        shape = [1] * len(node.value.shape)
        shape[attrs["axis"]] = node.value.shape[attrs["axis"]]
        to = self.constant(shape, "int64")
        defined = self.node("Reshape", [defined, to])
        operand = self.node("Reshape", [self.cast(operand, dtype), to])
        op = {"add": "Add", "subtract": "Sub", "rsubtract": "Sub", "max": "Max", "min": "Min"}
        pair = [operand, x] if attrs["combine"] == "rsubtract" else [x, operand]
        inside = self.through(op[attrs["combine"]], pair, dtype, _wide(dtype))
        outside = self.constant(0, dtype) if attrs["otherwise"] == "zero" else x
        return self.node("Where", [defined, inside, outside])

    # ---- Moves -----------------------------------------------------------------------------------

    def _take(self, node: Node, args: list[str]) -> str:
        return self.node("Gather", args, axis=node.attrs["axis"])

    def _reshape(self, node: Node, args: list[str]) -> str:
        return self.node("Reshape", [args[0], self.constant(node.attrs["to"], "int64")])

    def _permute(self, node: Node, args: list[str]) -> str:
        return self.node("Transpose", args, perm=node.attrs["order"])

    def _concat(self, node: Node, args: list[str]) -> str:
        return self.node("Concat", args, axis=node.attrs["axis"])

    def _sliced(self, x: str, axis: int, begin: int, end: int, step: int = 1) -> str:
        limits = [self.constant([each], "int64") for each in (begin, end, axis, step)]
        return self.node("Slice", [x, *limits])

    def _split(self, node: Node, args: list[str]) -> str:
        axis, part = node.attrs["axis"], node.attrs["part"]
        extent = node.value.shape[axis]
        return self._sliced(args[0], axis, part * extent, (part + 1) * extent)

    def _slice(self, node: Node, args: list[str]) -> str:
        attrs = node.attrs
        return self._sliced(args[0], attrs["axis"], attrs["begin"], attrs["end"], attrs["step"])

    def _pad(self, node: Node, args: list[str]) -> str:
        ndim, attrs = len(node.value.shape), node.attrs
        pads = [0] * (2 * ndim)
        pads[attrs["axis"]] = attrs["before"]
        pads[ndim + attrs["axis"]] = attrs["after"]
        return self.node("Pad", [args[0], self.constant(pads, "int64")])


_BINARY = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
}
_MOVES = ("take", "reshape", "permute", "concat", "split", "slice", "pad")


def _wide(dtype: str) -> str:
    return "int32" if dtype == "int8" else dtype
