"""The names of torch's dimensions, which an exported program has symbols of its own for."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def dimension_names(exported: Any, dynamic_shapes: Any) -> dict[str, tirx.Var]:
    """Return by the symbols of an exported program variables with the names of its dimensions.

    - `exported`: torch.export.ExportedProgram.
    - `dynamic_shapes`: the argument of the export. Only dimensions that have a name, those of
      ``torch.export.Dim``, are renamed.
    """
    specs = dynamic_shapes.values() if isinstance(dynamic_shapes, dict) else dynamic_shapes or ()
    found: dict[str, tirx.Var] = {}
    wanted = set(exported.graph_signature.user_inputs)
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder" and n.name in wanted]
    for node, spec in zip(nodes, _leaves(specs), strict=False):
        places = spec.items() if isinstance(spec, dict) else enumerate(spec or ())
        for place, dimension in places:
            # A multiple of a dimension is named as that.
            name = getattr(getattr(dimension, "root", dimension), "__name__", None)
            size = node.meta["val"].shape[place]
            symbols = getattr(
                getattr(getattr(size, "node", None), "expr", None), "free_symbols", ()
            )
            if name and len(symbols) == 1:
                found.setdefault(str(next(iter(symbols))), tirx.Var(name, "int64"))
    return found


def _leaves(specs: Any) -> list[Any]:
    """Return the specifications of the tensors, which may be in lists and tuples."""
    found: list[Any] = []
    for spec in specs:
        nested = isinstance(spec, list | tuple) and any(
            isinstance(each, dict | list | tuple) for each in spec
        )
        found += _leaves(spec) if nested else [spec]
    return found
