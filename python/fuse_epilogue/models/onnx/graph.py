"""Facts of ONNX models that rewritings read, and the nodes that they write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

#: Names of ONNX's own operators, and of those of ONNX Runtime.
ONNX_DOMAINS = ("", "ai.onnx")
RUNTIME_DOMAIN = "com.microsoft"
#: Number of elements up to which a constant may be a shape.
_SMALL = 64


def is_node(node: Any, *names: str) -> bool:
    """Return whether a node is one of ONNX's own operators."""
    return node.op_type in names and node.domain in ONNX_DOMAINS


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a node by their names."""
    import onnx

    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def opset_of(model: Any) -> int:
    """Return the version of ONNX's own operators in a model."""
    return max(int(each.version) for each in model.opset_import if each.domain in ONNX_DOMAINS)


def refused(node: Any, reason: str) -> ValueError:
    """Return the error for a node that is not supported."""
    name = node.name or node.output[0]
    return ValueError(f"operator {node.op_type}, '{name}': {reason} is not supported")


class Facts:
    """Types and sizes of a model's values, and its constants."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._constants = {each.name: each for each in model.graph.initializer}
        for node in model.graph.node:
            if is_node(node, "Constant") and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t

    @cached_property
    def _types(self) -> dict[str, Any]:
        import onnx

        graph = onnx.shape_inference.infer_shapes(_without_weights(self._model)).graph
        return {
            each.name: each.type.tensor_type
            for each in (*graph.value_info, *graph.input, *graph.output)
        }

    @cached_property
    def opset(self) -> int:
        """Version of ONNX's own operators."""
        return opset_of(self._model)

    @cached_property
    def _read(self) -> set[str]:
        return {each.name for each in self._model.graph.output} | set(_inputs_of(self._model.graph))

    def is_read(self, name: str) -> bool:
        """Return whether a node reads a value, or it is a result of the model."""
        return name in self._read

    def constant(self, name: str) -> Any:
        """Return a constant of one element at most as an array, None for any other value."""
        found = self._constants.get(name)
        small = found is not None and math.prod(found.dims) <= 1
        return self.array(name) if small else None

    def small(self, name: str) -> Any:
        """Return a constant of few elements, such as a shape, as an array; None for others."""
        found = self._constants.get(name)
        few = found is not None and math.prod(found.dims) <= _SMALL
        return self.array(name) if few else None

    def array(self, name: str) -> Any:
        """Return a constant as an array, None for any other value."""
        import onnx

        found = self._constants.get(name)
        return None if found is None else onnx.numpy_helper.to_array(found)

    def dtype(self, name: str) -> Any:
        """Return the type of a value's elements, of numpy; a KeyError if it is not known."""
        import onnx

        if name in self._constants:
            return onnx.helper.tensor_dtype_to_np_dtype(self._constants[name].data_type)
        return onnx.helper.tensor_dtype_to_np_dtype(self._types[name].elem_type)

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Return the sizes of a value, None for those that may differ from call to call."""
        if name in self._constants:
            return tuple(self._constants[name].dims)
        known = self._types.get(name)
        if known is None or not known.HasField("shape"):
            return None
        return tuple(
            size.dim_value if size.HasField("dim_value") else None for size in known.shape.dim
        )


def _inputs_of(graph: Any) -> Iterator[str]:
    """Yield the names of what nodes read, those of branches and loops too."""
    for node in graph.node:
        yield from node.input
        for each in node.attribute:
            if each.HasField("g"):
                yield from _inputs_of(each.g)
                yield from (output.name for output in each.g.output)


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


def constant_node(name: str, array: np.ndarray) -> Any:
    """Return a node whose result is an array."""
    import onnx

    value = onnx.numpy_helper.from_array(array)
    return onnx.helper.make_node("Constant", [], [name], value=value)


class Writer:
    """Nodes that compute values step by step.

    - `name`: name of the result; those of the steps begin with it.
    """

    def __init__(self, name: str) -> None:
        self.nodes: list[Any] = []
        self._name = name

    def _fresh(self) -> str:
        return f"{self._name}/step{len(self.nodes)}"

    def constant(self, value: Any, dtype: Any) -> str:
        """Return the name of a new constant."""
        name = self._fresh()
        self.nodes.append(constant_node(name, np.asarray(value, dtype)))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of the result of a new node."""
        import onnx

        name = self._fresh()
        self.nodes.append(onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def finish(self, result: str, name: str = "") -> list[Any]:
        """Return the nodes, a result under the name that it had, by default the writer's."""
        import onnx

        self.nodes.append(onnx.helper.make_node("Identity", [result], [name or self._name]))
        return self.nodes
