"""Operators of torch whose operands are of several types, with the conversions written out.

torch promotes operands to a common type; the importer of Relax gives a number the type of the
tensor beside it, whatever its value, and has operators that take operands of one type only.
"""

from __future__ import annotations

from typing import Any

#: Operators that add or subtract a multiple of their second operand.
_SCALED = ("aten.add.", "aten.sub.", "aten.rsub.")
#: Operators that sum bools and short integers in 64 bits, which their importer does not.
_SUMS = ("aten.cumsum.", "aten.cumprod.", "aten.sum.", "aten.prod.")
#: Operators with sums, computed in 32 bits where their operands are floats of 16; TVM also has no
#: powers of all of these.
_WIDE = (
    *("aten.convolution.", "aten.mm.", "aten.bmm.", "aten.addmm.", "aten.baddbmm."),
    *(*_SUMS, "aten.mean.", "aten.var.", "aten._softmax.", "aten._log_softmax."),
    *("aten.native_layer_norm.", "aten.native_group_norm.", "aten._native_batch_norm_legit"),
    *("aten.avg_pool", "aten._adaptive_avg_pool", "aten.pow."),
)
#: Elementwise operators whose operand at this place selects, and is not promoted.
_SELECTORS = {"aten.where.": 0, "aten.masked_fill.": 1}
#: Elementwise operators that convert.
_CONVERSIONS = ("aten._to_copy.", "aten.to.", "aten.type_as.", "aten.copy.")


def with_explicit_types(exported: Any) -> Any:
    """Return an exported program in which every operator's operands are of one type.

    - `exported` (torch.export.ExportedProgram): in core operators; its graph is changed.
    """
    for node in list(exported.graph.nodes):
        if node.op != "call_function" or not hasattr(node.target, "tags"):
            continue
        _write_out_factor(node)
        if str(node.target).startswith(_SUMS):
            _convert(node, 0, node.meta["val"].dtype)
        _promote(node)
        if str(node.target).startswith(_WIDE):
            _widen(node)
    return exported


def _write_out_factor(node: Any) -> None:
    """Multiply the second operand of a sum by the factor that it has beside it."""
    import torch

    name = str(node.target)
    if not name.startswith(_SCALED):
        return
    positional = len(node.args) > 2
    factor = node.args[2] if positional else node.kwargs.get("alpha", 1)
    node.kwargs = {key: value for key, value in node.kwargs.items() if key != "alpha"}
    # What is scaled is subtracted from, where the operands are the other way round.
    place = 0 if name.startswith("aten.rsub.") else 1
    operands = list(node.args[:2])
    if factor != 1:
        operand = operands[place]
        if isinstance(operand, torch.fx.Node):
            with node.graph.inserting_before(node):
                scaled = node.graph.call_function(torch.ops.aten.mul.Tensor, (operand, factor))
            scaled.meta["val"] = operand.meta["val"] * factor
            _promote(scaled)
            operands[place] = scaled
        else:
            operands[place] = operand * factor
    if positional or factor != 1:
        node.args = tuple(operands)


def _promote(node: Any) -> None:
    """Convert the operands of an elementwise operator to the type that torch computes it in."""
    import torch

    result = node.meta.get("val")
    name = str(node.target)
    if torch.Tag.pointwise not in node.target.tags or name.startswith(_CONVERSIONS):
        return
    if not isinstance(result, torch.Tensor):
        return
    selector = next((at for key, at in _SELECTORS.items() if name.startswith(key)), None)
    places = [
        place
        for place, operand in enumerate(node.args)
        if place != selector and isinstance(operand, torch.fx.Node | int | float)
    ]
    common = result.dtype
    if common == torch.bool:
        common = _common_type([node.args[place] for place in places])
    for place in places:
        value = _value(node.args[place])
        # Nothing elementwise promotes a float to an integer: it would be a conversion.
        if isinstance(value, torch.Tensor) and (
            common.is_floating_point or not value.dtype.is_floating_point
        ):
            _convert(node, place, common)


def _common_type(operands: list[Any]) -> Any:
    """Return the type that torch compares operands in."""
    import torch

    values = [_value(operand) for operand in operands]
    first, *others = sorted(values, key=lambda value: not isinstance(value, torch.Tensor))
    common = first.dtype if isinstance(first, torch.Tensor) else torch.result_type(first, first)
    for other in others:
        common = torch.promote_types(common, torch.result_type(first, other))
    return common


def _value(operand: Any) -> Any:
    """Return a value as torch promotes it: a tensor without memory, or a number."""
    import torch

    value = operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand
    return int(value.node.hint) if isinstance(value, torch.SymInt) else value


def _widen(node: Any) -> None:
    """Compute a sum of 16-bit floats in 32 bits, and round its results once."""
    import operator

    import torch

    value = node.meta["val"]
    results = [node]
    if isinstance(value, tuple | list):
        results = [user for user in node.users if user.target is operator.getitem]
    dtype = results[0].meta["val"].dtype if results else torch.float32
    if dtype not in (torch.float16, torch.bfloat16):
        return
    wide = torch.float32
    for place, operand in enumerate(node.args):
        if isinstance(operand, torch.fx.Node) and isinstance(_value(operand), torch.Tensor):
            _convert(node, place, wide)
    if node.kwargs.get("dtype") is not None:
        node.kwargs = {**node.kwargs, "dtype": wide}
    if results[0] is not node:
        node.meta["val"] = tuple(each.to(wide) for each in value)
    for result in results:
        if result.meta["val"].dtype == dtype:
            _round(result, dtype)


def _round(node: Any, dtype: Any) -> None:
    """Let the users of a node have its value in 16 bits; the node's own is in 32."""
    import torch

    node.meta["val"] = node.meta["val"].to(torch.float32)
    with node.graph.inserting_after(node):
        rounded = _cast(node, dtype)
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)


def _convert(node: Any, place: int, dtype: Any) -> None:
    """Convert an operand, if it is a tensor of another type."""
    operand = node.args[place]
    if operand.meta["val"].dtype == dtype:
        return
    with node.graph.inserting_before(node):
        converted = _cast(operand, dtype)
    arguments = list(node.args)
    arguments[place] = converted
    node.args = tuple(arguments)


def _cast(operand: Any, dtype: Any) -> Any:
    """Insert a conversion where the graph is written."""
    import torch

    made = operand.graph.call_function(
        torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}
    )
    made.meta["val"] = operand.meta["val"].to(dtype)
    return made
