"""A Relax function that calls a PrimFunc, so that it can be used as a model."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax, tirx


def with_relax_main(mod: ir.IRModule) -> ir.IRModule:
    """Return a module of one PrimFunc with a Relax function "main" that calls it.

    The inputs of "main" are the parameters that the function only reads; it returns those that the
    function writes, which must come last.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        With one PrimFunc, or with one that is named "main".

    Raises
    ------
    ValueError
        There is no such PrimFunc, a parameter is not a buffer, or those that are written do not
        come last.
    """
    name, func = _entry(mod)
    written = _written(func)
    params = [func.buffer_map[param] for param in func.params if param in func.buffer_map]
    if len(params) < len(func.params):
        raise ValueError(f"'{name}' has a parameter that is not a buffer: a model takes arrays")
    outputs = [buffer for buffer in params if any(buffer.same_as(each) for each in written)]
    count = len(params) - len(outputs)
    if not outputs or any(any(b.same_as(w) for w in written) for b in params[:count]):
        raise ValueError(
            f"the last parameters of '{name}' must be its outputs, and it must only write those"
        )
    inner = f"{name}_kernel"
    builder = relax.BlockBuilder()
    kernel = builder.add_func(func.with_attr("global_symbol", inner), inner)
    for var, other in mod.functions.items():
        if var.name_hint != name:
            builder.add_func(other, var.name_hint)
    inputs = [relax.Var(buffer.name, _type(buffer)) for buffer in params[:count]]
    types = [_type(buffer) for buffer in params[count:]]
    with builder.function("main", inputs):
        with builder.dataflow():
            call = relax.call_tir(kernel, inputs, types if len(types) > 1 else types[0])
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def _entry(mod: ir.IRModule) -> tuple[str, Any]:
    found = {
        str(var.name_hint): func
        for var, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    if "main" in found:
        return "main", found["main"]
    if len(found) != 1:
        raise ValueError(
            f"the module has {len(found)} PrimFuncs ({', '.join(found) or 'none'}), and none is "
            "named 'main': name the one to compile 'main'"
        )
    return next(iter(found.items()))


def _type(buffer: Any) -> Any:
    return relax.TensorType(list(buffer.shape), buffer.dtype)


def _written(func: Any) -> list[Any]:
    """Return the buffers that the statements of a function store to."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.BufferStore):
            found.append(node.buffer)

    tirx.stmt_functor.post_order_visit(func.body, visit)
    return found
