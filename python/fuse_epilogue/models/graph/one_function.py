"""Makes one PrimFunc of several operators of Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, te, tirx
from tvm.ir import Call, GenericConst

from ...tir.walk import handle
from .cleanup import FoldNoOps
from .constant_masks import ALL_TRUE, mask_element
from .rewriting import constant_shape, with_arguments
from .unflattened import UnflattenProducts


def operands(group: Sequence[Any]) -> list[Any]:
    """Return what bindings read of others, in the order in which it is read first.

    Constants are among them, except those whose elements are written out.

    Parameters
    ----------
    group : Sequence[tvm.relax.VarBinding]
        Bindings to calls of operators, in order.
    """
    own = {handle(each.var) for each in group}
    found: dict[int, Any] = {}
    for each in group:
        for argument in each.value.args:
            is_var = isinstance(argument, relax.Var) and handle(argument) not in own
            if is_var or (
                isinstance(argument, GenericConst) and not _is_written_out(each.value, argument)
            ):
                found.setdefault(handle(argument), argument)
    return list(found.values())


def _is_written_out(call: Any, constant: Any) -> bool:
    """Whether the elements of a constant are expressions in the function: numbers, and masks."""
    if constant.ty.ndim == 0:
        return True
    return call.op.name == "relax.where" and mask_element(constant) is not None


def one_function(group: Sequence[Any]) -> Any:
    """Return a PrimFunc of the operands that computes the last of some bindings.

    Parameters
    ----------
    group : Sequence[tvm.relax.VarBinding]
        Bindings to calls of operators, in order.

    Returns
    -------
    tvm.tirx.PrimFunc or None
        None if a size is not constant, or an operator has no PrimFunc.
    """
    inputs = operands(group)
    if any(constant_shape(each) is None for each in (*inputs, *(each.var for each in group))):
        return None
    passes = ir.transform.Sequential(
        [
            UnflattenProducts(),
            FoldNoOps(),
            relax.transform.LegalizeOps({"relax.where": _where}),
        ]
    )
    mod = passes(_module(group, inputs))
    inner = mod["main"].without_attr("global_symbol").with_attr("Primitive", True)
    bindings = [each for block in inner.body.blocks for each in block.bindings]
    if any(getattr(each.value.op, "name", "") != "relax.call_tir" for each in bindings):
        return None
    return _fused(mod, inner)


def _module(group: Sequence[Any], inputs: list[Any]) -> ir.IRModule:
    """Return a module whose function "main" computes the last binding of a group."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{number}", each.ty) for number, each in enumerate(inputs)]
    table = {handle(each): param for each, param in zip(inputs, params, strict=True)}
    with builder.function("main", params):
        with builder.dataflow():
            for each in group[:-1]:
                table[handle(each.var)] = builder.emit(_of(each.value, table))
            result = builder.emit_output(_of(group[-1].value, table))
        builder.emit_func_output(result)
    return builder.get()


def _of(call: Any, table: dict[int, Any]) -> Any:
    """Return a call with its operands replaced."""

    def operand(each: Any) -> Any:
        if isinstance(each, GenericConst) and _is_written_out(call, each):
            return each
        return table.get(handle(each), each)

    return with_arguments(call, list(map(operand, call.args)))


def _fused(mod: ir.IRModule, inner: Any) -> Any:
    """Return the PrimFunc that TVM makes of a function of Relax."""
    functions = {var: func for var, func in mod.functions.items() if var.name_hint != "main"}
    builder = relax.BlockBuilder(ir.IRModule(functions))
    place = builder.add_func(inner, "attention")
    params = [relax.Var(str(param.name), param.ty) for param in inner.params]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(Call(place, params))
        builder.emit_func_output(result)
    done = relax.transform.FuseTIR()(builder.get())
    found = [func for func in done.functions.values() if isinstance(func, tirx.PrimFunc)]
    return found[0] if len(found) == 1 else None


def _where(builder: Any, call: Any) -> Any:
    """Legalize a choice; elements of constants that are known become part of the function."""
    known = [_element(each) for each in call.args]
    condition = known[0]
    shape = [int(size) for size in call.ty.shape]
    if condition is ALL_TRUE:
        return relax.op.broadcast_to(call.args[1], shape)
    tensors = [each for each, element in zip(call.args, known, strict=True) if element is None]

    def where(*given: Any) -> Any:
        rest = iter(given)
        elements = [each if each is not None else _broadcast(next(rest)) for each in known]
        return te.compute(
            shape, lambda *axes: tirx.Select(*(each(*axes) for each in elements)), "where"
        )

    return builder.call_te(where, *tensors, primfunc_name_hint="where")


def _element(value: Any) -> Callable[..., Any] | None:
    """Return the element of a constant by axes of a result, None if it is read from memory."""
    if not isinstance(value, GenericConst):
        return None
    if value.ty.ndim > 0:
        return mask_element(value)
    number = tirx.const(value.value.numpy().item(), str(value.ty.dtype))
    return lambda *_axes: number


def _broadcast(tensor: Any) -> Callable[..., Any]:
    """Return the element of a tensor that is broadcast to more or longer axes."""

    def element(*axes: Any) -> Any:
        own = axes[len(axes) - len(tensor.shape) :]
        indices = [
            tirx.const(0, "int64") if int(size) == 1 else axis
            for size, axis in zip(tensor.shape, own, strict=True)
        ]
        return tensor(*indices)

    return element
