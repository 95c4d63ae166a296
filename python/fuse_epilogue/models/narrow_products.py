"""Products of integers that were widened: of the narrow integers, in sums of 32 bits.

    matmul(astype(x, int32), w)   ->   matmul(x, w', out_dtype=int32)

The product's own loops widen then, where processors have instructions for narrow factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from .rewriting import rewritten

#: Types of factors for which kernels have instructions, the narrowest first.
NARROW = ("int8", "uint8", "int16")


@tvm.transform.module_pass(opt_level=0, name="NarrowProducts")
class NarrowProducts:
    """Multiply narrow integers where both factors were widened to 32 bits before a product."""

    def transform_module(
        self, mod: ir.IRModule, _context: tvm.transform.PassContext
    ) -> ir.IRModule:
        """Return the module with narrow factors of products.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            Stays as it is.
        """
        return rewritten(mod, _Rewriter)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a product of 32 bits as one of narrow factors, if both are."""
        call = super().visit_call_(call)
        if getattr(call.op, "name", "") != "relax.matmul" or str(call.ty.dtype) != "int32":
            return call
        factors = [self._narrow(each) for each in call.args]
        if any(each is None for each in factors):
            return call
        return relax.op.matmul(*factors, out_dtype="int32")

    def _narrow(self, value: Any) -> Any:
        """Return a value in a narrow type, None if it is not known to fit in one."""
        if str(getattr(value.ty, "dtype", "")) in NARROW:
            return value
        if isinstance(value, GenericConst):
            return _constant(value)
        bound = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if bound is None or getattr(getattr(bound, "op", None), "name", "") != "relax.astype":
            return None
        # Of a narrow type, and to 32 bits: every value is the value before.
        before = bound.args[0]
        return before if str(before.ty.dtype) in NARROW else None


def _constant(value: Any) -> Any:
    array = value.value.numpy()
    if array.size == 0 or array.dtype.kind not in "iu":
        return None
    for dtype in NARROW:
        ends = np.iinfo(dtype)
        if ends.min <= array.min() and array.max() <= ends.max:
            return relax.const(array.astype(dtype), dtype)
    return None
