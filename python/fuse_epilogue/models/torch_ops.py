"""Operators of torch that are imported in another way than TVM's frontend does.

Attention is imported in one piece: as one operator of Relax, which a kernel of its own computes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

from .torch_converters import further_converters
from .torch_indexing import indexing_converters
from .torch_resampling import resampling_converters
from .torch_types import with_explicit_types

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

    from .torch_decompositions import decompositions, max_pool_with_indices

    table = torch.export.default_decompositions()
    nodes = [node for node in exported.graph.nodes if str(node.target) in _ATTENTION]
    if nodes and all(_in_one_piece(node) for node in nodes):
        for attention in [each for each in table if "scaled_dot_product" in str(each)]:
            table.pop(attention)
    # A decomposition may leave an operator as it is, which is what torch would do without it.
    table.update(decompositions())
    core = exported.run_decompositions(table)
    pool = torch.ops.aten.max_pool2d_with_indices.default
    if any(node.target is pool and _uses_second(node) for node in core.graph.nodes):
        core = core.run_decompositions({pool: max_pool_with_indices})
    return with_explicit_types(core)


def _uses_second(node: Any) -> bool:
    """Return whether anything uses the second result of a node."""
    return any(user.target is operator.getitem and user.args[1] == 1 for user in node.users)


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
        **further_converters(),
        **indexing_converters(),
        **resampling_converters(),
        "scaled_dot_product_attention.default": _attention,
        "_scaled_dot_product_flash_attention_for_cpu.default": lambda node, importer: (
            _attention(node, importer),
            None,
        ),
    }


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
