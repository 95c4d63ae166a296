"""A Relax function that calls a PrimFunc, so that it can be used as a model."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax, s_tir, tirx

from ..tir.walk import handle, loads, parts_of, stored_to


def with_relax_main(mod: ir.IRModule) -> ir.IRModule:
    """Return a module of one PrimFunc with a Relax function "main" that calls it.

    The inputs of "main" are the parameters that the function only reads; it returns those that the
    function writes, which must come last.

    - `mod`: with one PrimFunc, or with one that is named "main".
    - Raises ValueError: there is no such PrimFunc, a parameter is not a buffer, those that are
      written do not come last, or one of them is read before.
    """
    name, func = _entry(mod)
    stored = stored_to(func.body)
    params = list(func.params)
    if not all(hasattr(param.ty, "shape") for param in params):
        raise ValueError(f"'{name}' has a parameter that is not a buffer: a model takes arrays")
    outputs = [param for param in params if handle(param) in stored]
    count = len(params) - len(outputs)
    if not outputs or any(handle(param) in stored for param in params[:count]):
        raise ValueError(
            f"the last parameters of '{name}' must be its outputs, and it must only write those"
        )
    early = read_early(func)
    updated = [param.name for param in outputs if handle(param) in early]
    if updated:
        raise ValueError(
            f"'{name}' updates '{updated[0]}' in place, and a model returns arrays of its own: "
            "compile the function alone, tvm.compile(schedules.apply(func, target), target)"
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


def _type(param: Any) -> Any:
    return relax.TensorType(list(param.ty.shape), str(param.ty.dtype))


def read_early(func: Any) -> set[int]:
    """Return the handles of the buffers that a block reads although none has stored them yet."""
    early: set[int] = set()
    stored: set[int] = set()
    for block in parts_of(func.body, s_tir.SBlock):
        if len(parts_of(block.body, s_tir.SBlock)) > 0:
            continue
        own = stored_to(block)
        read = {handle(load.source) for load in (*loads(block.init), *loads(block.body))}
        # A sum reads itself after it has stored its start.
        early |= read - stored - (own if block.init is not None else set())
        stored |= own
    return early
