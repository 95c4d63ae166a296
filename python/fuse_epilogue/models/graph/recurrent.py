"""Layers of recurrent networks in Relax: products of the inputs of all steps, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import prim

from ...recognize.recurrence import Layer
from .rewriting import OPAQUE, known_shape


def emit_layer(
    builder: relax.BlockBuilder,
    cell: str,
    x: Any,
    states: Sequence[Any],
    into: Any,
    weights: Sequence[Any],
    bias: Any = None,
    *,
    reverse: bool = False,
) -> list[Any]:
    """Emit a layer in one direction.

    - `cell`: one of :data:`fuse_epilogue.recognize.recurrence.CELLS`.
    - `x` (relax.Var): steps x batch x features.
    - `states` (Sequence[relax.Var]): the first states, batch x size each.
    - `into` (relax.Var): weights of the input, gates x features.
    - `weights` (Sequence[relax.Var]): weights of the cell.
    - `bias` (relax.Var, optional): added to the products of the input.
    - `reverse`: whether the last step comes first.
    - Returns: the results of all steps, and the states after the last one.
    """
    emit: Callable[[Any], Any] = builder.emit
    products = emit(relax.op.matmul(x, emit(relax.op.permute_dims(into))))
    if bias is not None:
        products = emit(relax.op.add(products, bias))
    steps, batch, _ = known_shape(x) or []
    size = int(known_shape(states[0])[1])  # type: ignore[index]
    dtype = str(x.ty.dtype.dtype)
    own: dict[str, Any] = {}

    def inner(value: Any, name: str) -> Any:
        """Return a size of the function: a variable of its own for one that is symbolic."""
        if isinstance(value, prim.IntImm):
            return int(value)
        return own.setdefault(str(value), tirx.Var(name, "int64"))

    layer = Layer(cell, inner(steps, "steps"), inner(batch, "batch"), size, dtype, reverse)
    func = layer.function().with_attr("op_pattern", OPAQUE)
    place = builder.add_func(func, cell.replace(" ", "_"))
    shapes = [(steps, batch, size), *((batch, size) for _ in states)]
    types = [relax.TensorType(shape, dtype) for shape in shapes]
    call = emit(relax.call_tir(place, [products, *states, *weights], types))
    return [emit(relax.TupleGetItem(call, n)) for n in range(len(types))]


def emit_both(
    builder: relax.BlockBuilder, directions: Sequence[Callable[[], list[Any]]]
) -> list[Any]:
    """Emit a layer in one direction or two.

    - Returns: the results of all steps beside each other, and for each state a list by directions.
    """
    found = [each() for each in directions]
    results = [each[0] for each in found]
    y = results[0] if len(results) == 1 else builder.emit(relax.op.concat(results, -1))
    return [y, *(list(each) for each in zip(*(each[1:] for each in found), strict=True))]


def emit_item(builder: Any, arrays: Any, place: int) -> Any:
    """Emit one of several arrays that are stacked along a first axis."""
    one = builder.emit(relax.op.strided_slice(arrays, [0], [place], [place + 1]))
    return builder.emit(relax.op.squeeze(one, 0))
