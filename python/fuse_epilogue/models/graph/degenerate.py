"""Writes divisions by a constant zero, and reductions of no elements, as what they are.

TVM refuses to divide by a constant that is zero, and has kernels only for arrays with elements. The
place of a maximum is -1 to TVM where no element is above the start of the search, such as in a row
of negative infinities: elsewhere it is the first place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from .rewriting import constant_shape, graph_pass, rewritten

#: What operators make of no elements, by their names.
_OF_NONE = {
    **dict.fromkeys(("relax.sum", "relax.matmul"), 0.0),
    **{"relax.prod": 1.0, "relax.mean": math.nan, "relax.variance": math.nan},
}
_QUOTIENTS = frozenset({"relax.divide", "relax.floor_divide"})
#: Operators that return the place of an element.
_PLACES = frozenset({"relax.argmax", "relax.argmin"})
_REMAINDERS = frozenset({"relax.mod", "relax.floor_mod"})


@graph_pass
def DegenerateOperators(mod: ir.IRModule) -> ir.IRModule:
    """Write divisions by zero as products, sums of nothing as constants, places as at least 0."""
    return rewritten(mod, _Rewriter)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a call that TVM can compile."""
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name in _QUOTIENTS or name in _REMAINDERS:
            return _quotient(call, name)
        if name in _PLACES:
            place = self.builder_.emit(call)
            return relax.op.maximum(place, relax.const(0, str(place.ty.dtype)))
        result = constant_shape(call)
        if result is None or 0 in result:
            return call
        if name == "relax.concat":
            return _without_empty(call)
        return _reduction(call, result, name) if name in _OF_NONE else call


def _quotient(call: Any, name: str) -> Any:
    divisor = call.args[1]
    zero = divisor.value.numpy() if isinstance(divisor, GenericConst) else np.ones(1)
    if zero.ndim > 0 or zero != 0:
        return call
    dtype = str(divisor.ty.dtype)
    if "float" not in dtype:
        raise ValueError(
            "the model divides integers by the constant 0, which has no result: leave it out"
        )
    sign = math.copysign(1.0, float(zero))
    factor = math.nan if name in _REMAINDERS else sign * math.inf
    return relax.op.multiply(call.args[0], relax.const(np.array(factor, zero.dtype), dtype))


def _without_empty(call: Any) -> Any:
    """Return arrays one after the other without those that have no elements."""
    arrays = call.args[0]
    if not isinstance(arrays, relax.Tuple):
        return call
    kept = [each for each in arrays.fields if 0 not in (constant_shape(each) or [])]
    if len(kept) == len(arrays.fields):
        return call
    return kept[0] if len(kept) == 1 else relax.op.concat(kept, call.attrs.axis)


def _reduction(call: Any, result: list[int], name: str) -> Any:
    """Return what the sum, product or mean of no elements is."""
    dtype, neutral = str(call.ty.dtype), _OF_NONE[name]
    if 0 not in (constant_shape(call.args[0]) or []):
        return call
    if "float" not in dtype and math.isnan(neutral):
        return call
    return relax.op.broadcast_to(relax.const(neutral, dtype), relax.ShapeExpr(result))
