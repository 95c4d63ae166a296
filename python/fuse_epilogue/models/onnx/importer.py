"""Imports ONNX models into Relax: TVM's importer, with the nodes that are emitted here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tvm import ir
from tvm.relax.frontend.onnx import onnx_frontend

from .graph import opset_of
from .inlined import with_functions_inlined
from .nodes import with_known_nodes
from .operators import operator_rewrites
from .recurrent import NODES, emit_node


def relax_module(model: Any, loops: bool = True) -> ir.IRModule:
    """Return an ONNX model as a module of Relax; weights become constants.

    Parameters
    ----------
    model : onnx.ModelProto
    loops : bool
        Whether recurrent layers may become functions with loops.

    Raises
    ------
    ValueError
        The model has a recurrent layer, and `loops` is false.
    """
    imported = {*onnx_frontend._get_convert_map(), "Constant", "If", *NODES, *operator_rewrites()}
    known = with_known_nodes(with_functions_inlined(model, imported))
    layers = [node.op_type for node in known.graph.node if node.op_type in NODES]
    if not layers:
        return onnx_frontend.from_onnx(known, keep_params_in_input=False)
    if not loops:
        raise ValueError(
            f"operator {layers[0]}: a recurrent layer of ONNX is a loop over its steps, which is "
            "not supported but on processors: compile the model for one, or export it from torch, "
            "whose layers are written out"
        )
    return _Importer({}, "float32").from_onnx(known.graph, opset_of(known))


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer, with recurrent layers."""

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        others = [node for node in graph.node if node.op_type not in NODES]
        super()._check_for_unsupported_ops(SimpleNamespace(node=others))

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        if op_name in NODES:
            return emit_node(self.bb, op_name, list(inputs), attrs)
        return super()._convert_operator(op_name, inputs, attrs, opset)
