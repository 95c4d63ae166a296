"""Operators of torch that are imported in another way than TVM's frontend does.

Attention is imported in one piece: as one operator of Relax, which a kernel of its own computes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

#: torch's operators for attention, and where their arguments "is_causal" and "dropout_p" are.
_ATTENTION = {
    "aten.scaled_dot_product_attention.default": {"attn_mask": 3, "dropout_p": 4, "is_causal": 5},
    # What torch makes of it for a processor where no gradients are needed.
    "aten._scaled_dot_product_flash_attention_for_cpu.default": {"dropout_p": 3, "is_causal": 4},
}


def decomposed(exported: Any) -> Any:
    """Return an exported program in core operators, with attention in one piece where it can be.

    Parameters
    ----------
    exported : torch.export.ExportedProgram
        Stays as it is.
    """
    import torch

    table = torch.export.default_decompositions()
    nodes = [node for node in exported.graph.nodes if str(node.target) in _ATTENTION]
    if nodes and all(_in_one_piece(node) for node in nodes):
        for attention in [each for each in table if "scaled_dot_product" in str(each)]:
            table.pop(attention)
    return _with_cast_operands(exported.run_decompositions(table))


#: Operators of torch that sum bools and short integers in 64 bits, which their importer does not.
_SUMS = ("aten.cumsum.", "aten.cumprod.", "aten.sum.", "aten.prod.")


def _with_cast_operands(exported: Any) -> Any:
    """Return an exported program whose sums have operands of their result's type."""
    import torch

    graph = exported.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not str(node.target).startswith(_SUMS):
            continue
        operand, result = node.args[0], node.meta["val"]
        if operand.meta["val"].dtype == result.dtype:
            continue
        with graph.inserting_before(node):
            cast = graph.call_function(
                torch.ops.aten._to_copy.default, (operand,), {"dtype": result.dtype}
            )
        cast.meta["val"] = operand.meta["val"].to(result.dtype)
        node.replace_input_with(operand, cast)
    return exported


def _argument(node: Any, name: str, default: Any) -> Any:
    place = _ATTENTION[str(node.target)].get(name)
    if place is not None and len(node.args) > place:
        return node.args[place]
    return node.kwargs.get(name, default)


def _in_one_piece(node: Any) -> bool:
    """Return whether Relax's operator computes what a node of attention does.

    With a mask it does not: a row without any key is zero in torch, and undefined there.
    """
    if _argument(node, "attn_mask", None) is not None or _argument(node, "dropout_p", 0.0):
        return False
    if _argument(node, "enable_gqa", False):
        return False
    query, key, value = (each.meta["val"] for each in node.args[:3])
    if not query.dim() == key.dim() == value.dim() == 4:
        return False
    if not query.shape[:2] == key.shape[:2] == value.shape[:2]:
        return False
    if len(node.args) > 6 or not query.dtype.is_floating_point:
        return False
    if "flash" not in str(node.target):
        return True
    # The second result, which only gradients need, is not there.
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return by name what ``from_exported_program`` takes as `custom_convert_map`."""
    return {
        # TVM's importer takes the sums of any type in float32.
        **dict.fromkeys(("matmul.default", "mm.default", "bmm.default"), _product),
        "scaled_dot_product_attention.default": _attention,
        "_scaled_dot_product_flash_attention_for_cpu.default": lambda node, importer: (
            _attention(node, importer),
            None,
        ),
    }


def _product(node: Any, importer: Any) -> Any:
    """Emit a product of matrices, summed in the type of its operands."""
    operands = [importer.env[each] for each in node.args[:2]]
    return importer.block_builder.emit(relax.op.matmul(*operands))


def _attention(node: Any, importer: Any) -> Any:
    """Emit attention; Relax's operator has the heads after the rows."""
    emit = importer.block_builder.emit
    query, key, value = (
        emit(relax.op.permute_dims(importer.env[each], [0, 2, 1, 3])) for each in node.args[:3]
    )
    scale, dtype = node.kwargs.get("scale"), str(query.ty.dtype)
    result = relax.op.nn.attention(
        query,
        key,
        value,
        scale=None if scale is None else tirx.FloatImm(dtype, float(scale)),
        causal_mask="TopLeft" if _argument(node, "is_causal", False) else None,
    )
    return emit(relax.op.permute_dims(emit(result), [0, 2, 1, 3]))
