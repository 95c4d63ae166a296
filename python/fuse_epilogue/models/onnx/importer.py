"""Imports ONNX models into Relax: TVM's importer, with the nodes that are emitted here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tvm import ir, relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from .graph import opset_of
from .inlined import with_functions_inlined
from .nodes import with_known_nodes
from .open_shapes import converted
from .operators import operator_rewrites
from .recurrent import NODES, emit_node


def relax_module(model: Any, loops: bool = True) -> ir.IRModule:
    """Return an ONNX model as a module of Relax; weights become constants.

    - `model` (onnx.ModelProto)
    - `loops`: whether recurrent layers may become functions with loops.
    - Raises ValueError: the model has a recurrent layer, and `loops` is false.
    """
    imported = {*onnx_frontend._get_convert_map(), "Constant", "If", *NODES, *operator_rewrites()}
    known = with_known_nodes(with_functions_inlined(model, imported))
    layers = [node.op_type for node in known.graph.node if node.op_type in NODES]
    if layers and not loops:
        raise ValueError(
            f"operator {layers[0]}: a recurrent layer of ONNX is a loop over its steps, which is "
            "not supported except on processors: compile the model for one, or export it from "
            "torch, which unrolls its layers"
        )
    return _Importer({}, "float32").from_onnx(known.graph, opset_of(known))


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer, with recurrent layers and with sizes that have names."""

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        others = [node for node in graph.node if node.op_type not in NODES]
        super()._check_for_unsupported_ops(SimpleNamespace(node=others))

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        if op_name in NODES:
            return emit_node(self.bb, op_name, list(inputs), attrs)
        if op_name == "Range" and _counts_from_zero(inputs):
            # TVM's importer gives the length of any other range a name of its own.
            return self.bb.normalize(relax.op.arange(0, inputs[1], 1, dtype="int64"))
        try:
            made = converted(op_name, list(inputs), attrs)
            if made is not None:
                return self.bb.normalize(made)
            return super()._convert_operator(op_name, inputs, attrs, opset)
        except AttributeError as error:
            # TVM asks a size for its value.
            raise ValueError(
                f"operator {op_name}: a size that may differ from call to call is not supported "
                f"there ({error}): export the model with a number for it"
            ) from error


def _counts_from_zero(inputs: Any) -> bool:
    """Return whether a range is of the numbers below a size that has a name."""
    first, size, step = inputs
    if not ir.is_prim_expr(size) or not isinstance(size, tirx.Var) or str(size.ty) != "int64":
        return False
    constants = [each for each in (first, step) if isinstance(each, ir.GenericConst)]
    numbers = [each.value.numpy() for each in constants]
    return len(numbers) == 2 and numbers[0] == 0 and numbers[1] == 1
