"""Copies results that are constants, so that a caller who writes into one changes no other call."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax, te, topi
from tvm.ir import GenericConst

from .rewriting import constant_shape, graph_pass


@graph_pass
def CopyConstantResults(mod: ir.IRModule) -> ir.IRModule:
    """Copy each result of a function that is a constant: the model's own memory.

    It runs after the passes that fold constants, since they fold a copy of one too.
    """
    builder = relax.BlockBuilder(mod)
    changed = {
        var: _copied(func, builder)
        for var, func in mod.functions.items()
        if isinstance(func, relax.Function) and any(map(_is_constant, _results(func)))
    }
    if not changed:
        return mod
    return ir.IRModule({**builder.get().functions, **changed}, mod.attrs, mod.global_infos)


def _copied(func: Any, builder: relax.BlockBuilder) -> relax.Function:
    bindings: list[Any] = []

    def bound(value: Any) -> Any:
        normal = builder.normalize(value)
        var = relax.Var(f"result{len(bindings)}", normal.ty)
        bindings.append(relax.VarBinding(var, normal))
        return var

    results = []
    for result in _results(func):
        if _is_constant(result):
            kernel = builder.add_func(_copy(result), "copy_constant")
            result = bound(relax.call_tir(kernel, [result], result.ty))
        results.append(result)
    whole = results[0] if not isinstance(func.ret_ty, relax.TupleType) else None
    body = bound(relax.Tuple(results)) if whole is None else whole
    blocks = [*func.body.blocks, relax.BindingBlock(bindings)]
    return relax.Function(
        func.params, relax.SeqExpr(blocks, body), func.ret_ty, func.is_pure, func.attrs
    )


def _results(func: Any) -> list[Any]:
    """Return the results of a function: what its variables are bound to, where that is known."""
    bound = {
        binding.var: binding.value
        for block in func.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }

    def source(value: Any) -> Any:
        while isinstance(value, relax.Var):
            known = bound.get(value)
            if not isinstance(known, relax.Var | relax.Tuple | GenericConst):
                break
            value = known
        return value

    whole = source(func.body.body)
    return [source(each) for each in (whole.fields if isinstance(whole, relax.Tuple) else [whole])]


def _is_constant(value: Any) -> bool:
    return isinstance(value, GenericConst) and constant_shape(value) is not None


def _copy(constant: Any) -> Any:
    """Return the function that copies arrays of the shape and type of a constant."""
    array = te.placeholder(constant_shape(constant), str(constant.ty.dtype), name="constant")
    return te.create_prim_func([array, topi.identity(array)])
