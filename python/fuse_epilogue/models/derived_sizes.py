"""Inputs whose sizes are computed from sizes with names, such as 32*d.

Relax learns a size that has a name from a dimension that is this size alone. Where no input has
such a dimension, the model has one parameter more, the shape (d, ...), which no caller passes:
before the model is lowered to machine code, the names are computed from the sizes of the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, tirx
from tvm.ir import prim

from ..tir.affine import affine_of
from ..tir.walk import handle, variables

_NAME = "sizes"


def parameter_for(names: Sequence[Any]) -> Any:
    """Return the parameter of sizes that no dimension of an input is alone."""
    return relax.Var(_NAME, relax.ShapeType(list(names)))


def arrays_of(func: Any) -> list[Any]:
    """Return the parameters that callers pass."""
    return [each for each in func.params if not isinstance(each.ty, relax.ShapeType)]


def linear(size: Any) -> tuple[int, Any, int] | None:
    """Return a size as a factor, a variable, and what is added; None if it is something else."""
    found = variables(size)
    if len({handle(each) for each in found}) != 1:
        return None
    affine = affine_of(size, found[:1])
    if affine is None or affine.constant is None or affine.factors[0] < 1:
        return None
    return affine.factors[0], found[0], affine.constant


def with_sizes_computed(mod: ir.IRModule) -> ir.IRModule:
    """Return a module whose functions compute these sizes themselves.

    - `mod`: stays as it is.
    - Raises ValueError: a size is not a multiple of one name, plus or minus a number.
    """
    changed = {
        var: _computed(func)
        for var, func in mod.functions.items()
        if isinstance(func, relax.Function) and len(arrays_of(func)) < len(func.params)
    }
    if not changed:
        return mod
    made = ir.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)
    return relax.transform.Normalize()(made)


def _computed(func: Any) -> Any:
    """Return a function without the parameter of sizes.

    An input of 32 * d elements becomes one of d_whole, of which d is a 32nd. That it is as many
    times d is checked when the function runs.
    """
    (sizes,) = [each for each in func.params if isinstance(each.ty, relax.ShapeType)]
    if all(isinstance(size, prim.IntImm) for size in sizes.ty.values):
        return relax.Function(arrays_of(func), func.body, func.ret_ty, func.is_pure, func.attrs)
    wholes: dict[str, Any] = {}
    values: dict[int, Any] = {}
    params, casts = [], []
    for param in arrays_of(func):
        shape = [
            size
            if isinstance(size, tirx.Var | prim.IntImm)
            else wholes.setdefault(str(size), _whole(size, str(param.name), values))
            for size in param.ty.shape
        ]
        params.append(relax.Var(str(param.name), relax.TensorType(shape, str(param.ty.dtype))))
        casts.append(relax.MatchCast(param, params[-1], param.ty))
    given = [values.get(handle(each), each) for each in sizes.ty.values]
    # TVM computes nothing inside of a cast.
    computed = relax.Var("computed_sizes", relax.ShapeType(ndim=len(given)))
    start = relax.BindingBlock(
        [
            relax.VarBinding(computed, relax.ShapeExpr(given)),
            relax.MatchCast(sizes, computed, sizes.ty),
            *casts,
        ]
    )
    body = relax.SeqExpr([start, *func.body.blocks], func.body.body)
    return relax.Function(params, body, _of_rank(func.ret_ty), func.is_pure, func.attrs)


def _whole(size: Any, param: str, values: dict[int, Any]) -> Any:
    """Return a variable for a size; the value of the name in it is put beside the others."""
    found = linear(size)
    if found is None:
        raise ValueError(
            f"the size {size} of '{param}' is not supported: name a size, a multiple of one, or "
            "one plus or minus a number"
        )
    factor, name, rest = found
    whole = tirx.Var(f"{name.name}_whole", "int64")
    values.setdefault(handle(name), prim.FloorDiv(whole - rest, prim.IntImm("int64", factor)))
    return whole


def _of_rank(type_: Any) -> Any:
    """Return a type without sizes, which names of the body may be in."""
    if isinstance(type_, relax.TupleType):
        return relax.TupleType([_of_rank(each) for each in type_.fields])
    return relax.TensorType(dtype=str(type_.dtype), ndim=type_.ndim)
