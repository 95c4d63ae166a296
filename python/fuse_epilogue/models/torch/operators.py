"""Operators of torch that are imported in another way than TVM's frontend does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .bags import bag_converters
from .converters import further_converters
from .indexing import indexing_converters
from .mixed_types import with_explicit_types
from .resampling import resampling_converters
from .slices import slice_converters


def decomposed(exported: Any, loops: bool = True) -> Any:
    """Return an exported program in core operators.

    - `exported` (torch.export.ExportedProgram): stays as it is.
    - `loops`: whether recurrent layers become functions with loops; otherwise each step is written
      out.
    """
    import torch

    from .decompositions import decompositions, max_pool_with_indices
    from .recurrent import recurrent_decompositions

    table = torch.export.default_decompositions()
    # A decomposition may leave an operator as it is, which is what torch would do without it.
    table.update(decompositions())
    if loops:
        table.update(recurrent_decompositions(table))
    core = exported.run_decompositions(table)
    pool = torch.ops.aten.max_pool2d_with_indices.default
    if any(node.target is pool and _uses_second(node) for node in core.graph.nodes):
        core = core.run_decompositions({pool: max_pool_with_indices})
    return with_explicit_types(core)


def _uses_second(node: Any) -> bool:
    """Return whether anything uses the second result of a node."""
    return any(user.target is operator.getitem and user.args[1] == 1 for user in node.users)


def converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return by name what ``from_exported_program`` takes as `custom_convert_map`."""
    # Not at the top: models of ONNX and Relax are imported where there is no torch.
    from .recurrent import recurrent_converters

    return {
        **further_converters(),
        **bag_converters(),
        **indexing_converters(),
        **recurrent_converters(),
        **resampling_converters(),
        **slice_converters(),
    }
