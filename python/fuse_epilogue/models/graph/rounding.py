"""Numbers that are quantised, as arithmetic of floats that other passes and kernels know.

quantize(x, scale, zero)   ->   astype(min(max(round(x / scale) + zero, low), high), dtype)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import graph_pass, rewritten

_INTEGERS = ("int8", "uint8", "int16", "uint16")


@graph_pass
def RoundedQuantities(mod: ir.IRModule) -> ir.IRModule:
    """Write quantisation of float32 as a quotient that is rounded, shifted and clipped."""
    return rewritten(mod, _Rewriter)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return the operators that quantise, for one that does."""
        call = super().visit_call_(call)
        if operator_name(call) != "relax.quantize":
            return call
        value, scale, zero = call.args
        dtype, rank = str(call.attrs.out_dtype), int(value.ty.ndim)
        if str(value.ty.dtype) != "float32" or dtype not in _INTEGERS or rank < 0:
            return call
        axis = int(call.attrs.axis) % rank if rank else 0
        scale, zero = (self._along(each, axis, rank) for each in (scale, zero))
        if not _is_all(scale, 1):
            value = self.builder_.emit(relax.op.divide(value, scale))
        value = self.builder_.emit(relax.op.round(value))
        if not _is_all(zero, 0):
            value = self.builder_.emit(relax.op.add(value, zero))
        ends = np.iinfo(dtype)
        # TVM's conversion of layouts knows these, and not clip.
        value = self.builder_.emit(relax.op.maximum(value, relax.const(np.float32(ends.min))))
        value = self.builder_.emit(relax.op.minimum(value, relax.const(np.float32(ends.max))))
        return relax.op.astype(value, dtype)

    def _along(self, value: Any, axis: int, rank: int) -> Any:
        """Return a number, or one for each place along an axis, in float32."""
        if isinstance(value, GenericConst):
            array = value.value.numpy().astype("float32")
            shape = [] if array.size == 1 else [*[1] * axis, -1, *[1] * (rank - 1 - axis)]
            return relax.const(array.reshape(shape))
        if str(value.ty.dtype) != "float32":
            value = self.builder_.emit(relax.op.astype(value, "float32"))
        if int(value.ty.ndim) != 1 or axis == rank - 1:
            return value
        return self.builder_.emit(relax.op.reshape(value, [-1, *[1] * (rank - 1 - axis)]))


def _is_all(value: Any, number: int) -> bool:
    """Return whether a value is a constant of this number only."""
    return isinstance(value, GenericConst) and bool((value.value.numpy() == number).all())
