"""Builds the Relax module of a drawn one, as a user would with Relax's operators and TE."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx

from .spec import Module, Node

op = relax.op
nn = relax.op.nn


def build(module: Module) -> tvm.IRModule:
    """Return the module in Relax, before any lowering."""
    builder = relax.BlockBuilder()
    values: list[Any] = [
        relax.Var(f"p{number}", relax.TensorType(each.value.shape, each.value.dtype))
        for number, each in enumerate(module.parameters)
    ]
    with builder.function("main", list(values)):
        with builder.dataflow():
            for node in module.nodes:
                args = [values[number] for number in node.args]
                values.append(_emit(builder, node, args))
            results = [values[number] for number in module.outputs]
            out = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(out)
    return builder.get()


def _emit(builder: Any, node: Node, args: list[Any]) -> Any:
    if node.op.startswith("guarded_") and node.op != "guarded_where":
        return builder.emit_te(_guarded(node), *args, primfunc_name_hint=node.op)
    emit = builder.emit
    x, attrs = args[0], node.attrs
    dtype = node.value.dtype
    if node.op == "matmul":
        other = args[1]
        if attrs["transposed"]:
            ndim = len(other.ty.shape)
            order = [*range(ndim - 2), ndim - 1, ndim - 2]
            other = emit(op.permute_dims(other, order))
        return emit(op.matmul(x, other, out_dtype=dtype))
    if node.op == "conv":
        conv = nn.conv1d if len(attrs["strides"]) == 1 else nn.conv2d
        options = {name: attrs[name] for name in ("strides", "padding", "dilation", "groups")}
        return emit(conv(*args, **options, out_dtype=dtype))
    if node.op in ("max_pool", "avg_pool"):
        pool = getattr(nn, f"{node.op}{len(attrs['kernel'])}d")
        more = {"count_include_pad": attrs["include"]} if node.op == "avg_pool" else {}
        return emit(pool(x, attrs["kernel"], attrs["strides"], attrs["padding"], **more))
    if node.op in ("sum", "mean", "max", "min", "prod"):
        return emit(getattr(op, node.op)(x, axis=attrs["axes"], keepdims=attrs["keepdims"]))
    if node.op.endswith("_literal"):
        literal = relax.const(attrs["literal"], dtype)
        pair = (literal, x) if attrs["left"] else (x, literal)
        return emit(getattr(op, node.op.removesuffix("_literal"))(*pair))
    if node.op == "guarded_where":
        zero, one = relax.const(0, dtype), relax.const(1, dtype)
        defined = emit(op.not_equal(args[1], zero))
        divisor = emit(op.where(defined, args[1], one))
        return emit(op.where(defined, emit(op.floor_divide(x, divisor)), args[2]))
    if node.op == "right_shift":
        return emit(op.right_shift(x, relax.const(attrs["bits"], dtype)))
    if node.op == "split":
        parts = emit(op.split(x, attrs["parts"], attrs["axis"]))
        return emit(relax.TupleGetItem(parts, attrs["part"]))
    if node.op == "pad":
        widths = [0] * (2 * len(node.value.shape))
        widths[2 * attrs["axis"] : 2 * attrs["axis"] + 2] = attrs["before"], attrs["after"]
        return emit(nn.pad(x, widths))
    if node.op == "slice":
        where = ([attrs["axis"]], [attrs["begin"]], [attrs["end"]], [attrs["step"]])
        return emit(op.strided_slice(x, *where))
    if node.op == "concat":
        return emit(op.concat(args, attrs["axis"]))
    if node.op in _WITH_ATTRIBUTES:
        return emit(_WITH_ATTRIBUTES[node.op](args, attrs, dtype))
    activation = node.op in ("relu", "silu", "gelu")
    return emit(getattr(nn if activation else op, node.op)(*args))


_WITH_ATTRIBUTES = {
    "clip": lambda a, attrs, _: op.clip(a[0], attrs["low"], attrs["high"]),
    "cast": lambda a, _, dtype: op.astype(a[0], dtype),
    "take": lambda a, attrs, _: op.take(a[0], a[1], attrs["axis"]),
    "reshape": lambda a, attrs, _: op.reshape(a[0], attrs["to"]),
    "permute": lambda a, attrs, _: op.permute_dims(a[0], attrs["order"]),
}


# ---- Guards in TE --------------------------------------------------------------------------------


def _guarded(node: Node) -> Any:
    """Return the function of TE for an operand that is undefined where its guard is false."""
    attrs = node.attrs
    axis = attrs["axis"]

    def elementwise(x: Any, *tensors: Any) -> Any:
        def element(*index: Any) -> Any:
            value, at = x(*index), index[axis]
            if node.op == "guarded_divide":
                divisor = tensors[0](at)
                conditions = [divisor != 0]
                operand = tirx.truncdiv(tirx.const(1000, "int32"), divisor)
            elif node.op == "guarded_gather":
                place, table = tensors[0](at), tensors[1]
                conditions = [place >= 0, place < int(table.shape[0])]
                operand = table(place)
            else:
                conditions = [at < attrs["length"]]
                operand = tensors[0](at)
            if node.op == "guarded_divide":
                operand = operand.astype(str(x.dtype))
            zero = tirx.const(0, str(x.dtype))
            combined = _COMBINE[attrs["combine"]](value, operand)
            return _under(attrs["guard"], conditions, combined, value, zero, attrs["otherwise"])

        return te.compute(x.shape, element, name=node.op)

    return elementwise


_COMBINE = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "rsubtract": lambda x, y: y - x,
    "max": te.max,
    "min": te.min,
}


def _under(kind: str, conditions: list[Any], value: Any, x: Any, zero: Any, otherwise: str) -> Any:
    """Return `value` under its conditions, in one of the ways that TIR has."""
    other = zero if otherwise == "zero" else x
    if kind == "nested":
        for condition in reversed(conditions):
            value = te.if_then_else(condition, value, other)
        # A second guard around, that is always true.
        return te.if_then_else(tirx.any(x <= zero, x > zero, x == x), value, other)
    whole = conditions[0] if len(conditions) == 1 else tirx.all(*conditions)
    if kind == "select":
        return tirx.Select(whole, value, other)
    if kind == "and":
        # The operand is compared behind the guard, and used behind it.
        whole = tirx.all(whole, tirx.any(value > other, value <= other, value == value))
    return te.if_then_else(whole, value, other)
