"""Exponentials of differences from the largest element of a row, and quotients by their sum.

The argument is not above 0, for which exp has a shorter form. The sum is not below 1 then, so that
its reciprocal neither overflows nor underflows: a product with it is off by a unit in the last
place of the quotient, as is a sum in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, prim

from ....recognize.reduction import Reduction
from ....tir.walk import handle, operator_name, same, substitute
from ..vector_math import exp_up_to_zero

if TYPE_CHECKING:
    from .passes import Pass, Work


class Exponentials:
    """Facts about the exponentials of a row.

    - `passes`: those of the row so far.
    """

    def __init__(self, passes: list[Pass]) -> None:
        self.passes = passes
        self.elements: dict[int, list[int]] = {}
        self.totals: set[int] = set()

    def shortened(
        self,
        values: tuple[Any, ...],
        reduction: Reduction | None,
        targets: Sequence[tuple[Any, Any]],
        one: Pass,
    ) -> tuple[Any, ...]:
        """Return the values of a stage with the short form of exp where it is right.

        Where a row has a NaN, there may be elements above the maximum; but the sum is a NaN then.
        """
        short: list[Any] = []

        def rule(call: Any) -> Any:
            is_exp = operator_name(call) == "tirx.exp"
            if is_exp and str(call.ty.dtype) == "float32" and self.is_up_to_zero(call.args[0], one):
                short.append(call)
                return exp_up_to_zero(call.args[0])
            return call

        made = tuple(tvm_ffi.structural_map(value, (Call, rule)) for value in values)
        if len(values) == 1:
            (value,), (buffer, _) = values, targets[0]
            is_element = any(same(value, call) for call in short)
            if reduction is None and is_element:
                self.elements[handle(buffer)] = one.extents
            elif reduction is not None and isinstance(reduction.merged[0], prim.Add):
                loaded = isinstance(value, TensorLoad) and (
                    self.elements.get(handle(value.source)) == one.extents
                )
                if (is_element or loaded) and not one.kept:
                    self.totals.add(handle(buffer))
        return made

    def scaled(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return values with products in place of quotients by a sum of exponentials."""

        def rule(quotient: Any) -> Any:
            by = quotient.b
            if isinstance(by, TensorLoad) and handle(by.source) in self.totals:
                return quotient.a * (tirx.const(1.0, "float32") / by)
            return quotient

        return tuple(tvm_ffi.structural_map(value, (prim.Div, rule)) for value in values)

    def is_up_to_zero(self, less: Any, one: Pass) -> bool:
        """Whether an argument is an element of a row less the maximum of the row."""
        return (
            isinstance(less, prim.Sub)
            and isinstance(less.b, TensorLoad)
            and any(
                _is_maximum(less.b, less.a, known, work, one)
                for known in self.passes
                for work in known.works
            )
        )


def _is_maximum(load: Any, element: Any, known: Pass, work: Work, one: Pass) -> bool:
    """Whether a load is of the maximum of what an element of a pass is one of."""
    if work.reduction is None or not isinstance(work.reduction.merged[0], prim.Max):
        return False
    (buffer, place), *others = work.targets
    if others or known.kept or known.extents != one.extents:
        return False
    table = {a.var: b.var for a, b in zip(known.domain, one.domain, strict=True)}
    return (
        same(buffer, load.source)
        and bool(tvm_ffi.structural_equal(place, load.indices[0]))
        and bool(tvm_ffi.structural_equal(substitute(work.values[0], table), element))
    )
