"""Operators of ONNX that TVM's importer does not know, written out as ONNX itself defines them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from .graph import ONNX_DOMAINS, opset_of


def with_functions_inlined(model: Any, known: Collection[str]) -> Any:
    """Return a model without calls of its own functions, and without unknown operators if it can.

    Operators such as Swish and NegativeLogLikelihoodLoss are defined by others.

    - `model` (onnx.ModelProto): stays as it is; returned itself if there is nothing to change.
    - `known`: names of operators that are imported as they are.
    """
    import onnx.inliner

    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    own = [node.op_type for node in model.graph.node if node.domain in ONNX_DOMAINS]
    for name in sorted(set(own) - set(known)):
        if _is_defined(name, opset_of(model)):
            inlined = onnx.inliner.inline_selected_functions(
                model, [("", name)], inline_schema_functions=True
            )
            more = Counter(node.op_type for node in inlined.graph.node) - Counter(own)
            # TVM has no arithmetic of sizes.
            if "Shape" not in more and set(more) <= set(known):
                model = inlined
                own = [node.op_type for node in model.graph.node]
    return model


def _is_defined(name: str, opset: int) -> bool:
    """Return whether ONNX defines an operator by others."""
    import onnx

    try:
        schema = onnx.defs.get_schema(name, opset)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
