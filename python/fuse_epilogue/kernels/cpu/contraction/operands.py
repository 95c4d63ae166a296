"""Values of the operands of a contraction, for values of its axes."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from ....recognize.accesses import Operand
from ....recognize.contraction import Contraction
from ....tir.walk import handle, substitute
from ..loops import FlatViews
from .vectors import at, typed


def value_at(
    contraction: Contraction, operand: Operand, env: dict[int, Any], views: FlatViews, sums: Any
) -> Any:
    """Return the value of an operand, loaded through flat views.

    - `operand`: one of its operands, or its epilogue.
    - `env`: values of the axes by their places, numbers or expressions.
    - `sums`: the finished sum, which an epilogue loads.
    """

    def load(node: Any) -> Any:
        access = operand.accesses.get(handle(node))
        if access is None:
            return sums
        return tirx.BufferLoad(views.of(node.source), [at(access, env)])

    if isinstance(operand.value, TensorLoad):
        return load(operand.value)
    value = tvm_ffi.structural_map(operand.value, (TensorLoad, load))
    axes = (*contraction.axes, *contraction.reduced)
    table = {
        axis.var: typed(env[place], axis.var) for place, axis in enumerate(axes) if place in env
    }
    table.update({var: typed(0, var) for var in contraction.zeros})
    return substitute(value, table)
