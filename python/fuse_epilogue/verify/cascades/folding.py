"""TVM's simplifier sees one store at a time, and the loop makes one of what were several.

What it takes for granted must not change a value there: of no integer or bool, and of no float
where floats are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, TensorLoad, Var, is_prim_expr, prim

from ...tir.walk import handle, parts_of, substitute
from ..certificate.simplifier import may_mistake, simplified_rightly
from ..certificate.subject import size_variables
from ..evaluation.scalars import SCALAR_TYPES
from ..proof.domain import Domain

_WIDE = ("int32", "int64")


class Folding:
    """Simplifies expressions of a function as TVM does when it compiles it.

    - `func`: the function after.
    - `exact`: whether floats are the same bit for bit.
    """

    def __init__(self, func: tirx.PrimFunc, exact: bool) -> None:
        axes = [(loop.loop_var, loop.min, loop.extent) for loop in parts_of(func.body, tirx.For)]
        for axis in parts_of(func.body, tirx.IterVar):
            axes.append((axis.var, axis.dom.min, axis.dom.extent))
        self._domain = Domain(axes, sizes=size_variables(func))
        self._exact = exact

    def changed(self, expr: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the parts of an expression that are simplified, each with what it becomes.

        Both are simplified where nothing can be mistaken, such as in a condition on axes.
        """
        for part in parts_of(expr, prim.Expr, Call):
            type = SCALAR_TYPES.get(str(part.ty.dtype)) if is_prim_expr(part) else None
            if type is None or (type.kind == "f" and not self._exact) or not may_mistake(part):
                continue
            simple = self._simplify(part)
            if not prim.expr_deep_equal(part, simple):
                yield simplified_rightly(part, self._simplify), simple

    def _simplify(self, expr: Any) -> Any:
        """Return an expression simplified, but for loads and indices, which stay as they are."""
        held: list[tuple[Any, Any]] = []

        def hold(part: Any) -> Any:
            if not (isinstance(part, TensorLoad) or _is_index(part)):
                return part
            for var, known in held:
                if prim.expr_deep_equal(part, known):
                    return var
            var = tirx.Var("held", str(part.ty.dtype))
            if not isinstance(part, TensorLoad):
                self._bind(var, part)
            held.append((var, part))
            return var

        kinds = (prim.Expr, TensorLoad, Var)
        without = tvm_ffi.structural_map(expr, (kinds, hold), order="pre")
        return substitute(self._domain.simplify(without), {handle(v): part for v, part in held})

    def _bind(self, var: Any, index: Any) -> None:
        """Let a variable be as large as an index; one that is known is not replaced by that."""
        bound = self._domain.analyzer.const_int_bound(index)
        first, last = int(bound.min_value), int(bound.max_value)
        if 0 < last - first < 1 << 31:
            self._domain.analyzer.bind(var, Range.from_min_extent(first, last - first + 1))


def _is_index(expr: Any) -> bool:
    """Whether it is arithmetic of axes, sizes and literals alone."""
    return (
        isinstance(expr, Var | prim.BinaryOpExpr | prim.Select | prim.Cast)
        and is_prim_expr(expr)
        and str(expr.ty.dtype) in _WIDE
        and not parts_of(expr, TensorLoad, Call)
        and not may_mistake(expr)
    )
