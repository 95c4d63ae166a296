"""Vectors of a register tile, and numbers as the expressions that index it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import prim

from ....recognize.accesses import Linear
from ..loops import index, loop


def pieces_of(extent: int, lanes: int) -> list[tuple[int, int]]:
    """Return vectors for n elements: (start, lanes), halves of a vector at the end."""
    found, start = [], 0
    while start < extent:
        while lanes > extent - start:
            lanes //= 2
        found.append((start, lanes))
        start += lanes
    return found


def lanes_loop(width: int, body: Callable[[Any], Any]) -> Any:
    """Return a vector operation."""
    return loop("lane", 0, width, body, tirx.ForKind.VECTORIZED)


def as_index(value: Any) -> Any:
    """Return a number as an index."""
    return index(value) if isinstance(value, int) else value


def typed(value: Any, var: Any) -> Any:
    """Return a value with the type of a variable."""
    dtype = str(var.ty.dtype)
    if isinstance(value, int):
        return prim.IntImm(dtype, value)
    return value if str(value.ty.dtype) == dtype else value.astype(dtype)


def at(linear: Linear, env: dict[int, Any]) -> Any:
    """Return an offset for values of the axes, numbers or expressions."""
    constant, total = linear.constant, None
    for place, factor in enumerate(linear.factors):
        if factor == 0:
            continue
        value = env[place]
        if isinstance(value, int):
            constant += factor * value
        else:
            term = value * index(factor) if factor != 1 else value
            total = term if total is None else total + term
    if total is None:
        return index(constant)
    return total + index(constant) if constant else total
