"""Products of integers that were widened: of the narrow integers, in sums of 32 bits.

    matmul(astype(x, int32), w)           ->   matmul(x, w', out_dtype=int32)
    matmul(astype(x, int32) - zero, w)    ->   matmul(x, w', out_dtype=int32) - zero * sums of w

The product's own loops widen then, where processors have instructions for narrow factors. A zero
point that is one number for all products of a sum is taken out of the product; sums of constant
weights are constants. Integers wrap around: the results are the same for all values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst, prim
from tvm.relax.expr_functor import PyExprMutator, mutator

from .rewriting import bound_call, graph_pass, rewritten

#: Types of factors for which kernels have instructions, the narrowest first.
NARROW = ("int8", "uint8", "int16")


@graph_pass
def NarrowProducts(mod: ir.IRModule) -> ir.IRModule:
    """Multiply narrow integers where both factors were widened to 32 bits before a product."""
    return rewritten(mod, _Rewriter)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a product of 32 bits as one of narrow factors, if both are."""
        call = super().visit_call_(call)
        if getattr(call.op, "name", "") != "relax.matmul" or str(call.ty.dtype) != "int32":
            return call
        left, right = call.args
        weights = self._narrow(right)
        if weights is None:
            return call
        narrow = self._narrow(left)
        if narrow is not None:
            return relax.op.matmul(narrow, weights, out_dtype="int32")
        narrow, zero = self._without_zero_point(left)
        if narrow is None or not isinstance(weights, GenericConst) or len(weights.ty.shape) < 2:
            return call
        sums = weights.value.numpy().sum(axis=-2, keepdims=True, dtype="int32")
        product = self.builder_.emit(relax.op.matmul(narrow, weights, out_dtype="int32"))
        correction = self.builder_.emit(relax.op.multiply(zero, relax.const(sums)))
        return relax.op.subtract(product, correction)

    def _narrow(self, value: Any) -> Any:
        """Return a value in a narrow type, None if it is not known to fit in one."""
        if str(getattr(value.ty, "dtype", "")) in NARROW:
            return value
        known = self._known(value)
        if known is not None:
            return _constant(known)
        bound = bound_call(self, value, "relax.astype")
        if bound is None:
            return None
        # Of a narrow type, and to 32 bits: every value is the value before.
        before = bound.args[0]
        return before if str(before.ty.dtype) in NARROW else None

    def _without_zero_point(self, value: Any) -> tuple[Any, Any]:
        """Return a narrow value and what is subtracted from it, None if it is something else."""
        bound = bound_call(self, value, "relax.subtract")
        narrow = None if bound is None else self._narrow(bound.args[0])
        if narrow is None or not isinstance(bound.args[1].ty.shape, relax.ShapeExpr):
            return None, None
        zero = bound.args[1]
        rank, sizes = len(narrow.ty.shape or ()), list(zero.ty.shape)
        # Along the products of a sum, it is one number; it does not add axes.
        fits = rank >= 2 and len(sizes) <= rank and (not sizes or _is_one(sizes[-1]))
        return (narrow, zero) if fits else (None, None)

    def _known(self, value: Any) -> np.ndarray | None:
        """Return the integers of a constant, or of what casts and differences make of constants.

        TVM's FoldConstant leaves casts of single numbers, such as zero points, as they are.
        """
        if isinstance(value, GenericConst):
            array = value.value.numpy()
            return array if array.dtype.kind in "iu" else None
        dtype = str(getattr(value.ty, "dtype", ""))
        for operator in ("relax.astype", "relax.subtract"):
            bound = bound_call(self, value, operator)
            if bound is None or dtype != "int32":
                continue
            parts = [self._known(each) for each in bound.args]
            if all(part is not None for part in parts):
                # Modulo 2^32, as integers wrap around.
                wide = [np.asarray(part, "int64") for part in parts]
                return (wide[0] if len(wide) == 1 else wide[0] - wide[1]).astype("int32")
        return None


def _is_one(size: Any) -> bool:
    return isinstance(size, prim.IntImm) and int(size) == 1


def _constant(array: np.ndarray) -> Any:
    """Return integers as a constant of the narrowest type that has them, None if none has."""
    if array.size == 0:
        return None
    for dtype in NARROW:
        ends = np.iinfo(dtype)
        if ends.min <= array.min() and array.max() <= ends.max:
            return relax.const(array.astype(dtype), dtype)
    return None
