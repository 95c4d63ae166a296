"""Products and convolutions of widened integers: of the narrow integers, in sums of 32 bits.

    matmul(astype(x, int32), w)           ->   matmul(x, w', out_dtype=int32)
    matmul(astype(x, int32) - zero, w)    ->   matmul(x, w', out_dtype=int32) - zero * sums of w

The product's own loops widen then, where processors have instructions for narrow factors. A zero
point that is one number for all products of a sum is taken out of the product; sums of constant
weights are constants. The same holds for convolutions, whose images have the zero point around
them then. Integers wrap around: the results are the same for all values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.affine import is_constant
from ...tir.walk import operator_name
from .integer_convolutions import CONVOLUTIONS, bordered, unbordered
from .rewriting import bound_call, graph_pass, rewritten, with_arguments

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
        name = operator_name(call)
        if str(getattr(call.ty, "dtype", "")) != "int32":
            return call
        if name == "relax.matmul":
            return self._product(call)
        if name in CONVOLUTIONS:
            return self._convolution(call)
        return self._sum(call) if name == "relax.add" else call

    def _product(self, call: Any) -> Any:
        left, right = call.args
        weights = self._narrow(right)
        if weights is None:
            return self._shifted(call)
        narrow = self._narrow(left)
        if narrow is not None:
            return relax.op.matmul(narrow, weights, out_dtype="int32")
        narrow, zero = self._without_zero_point(left)
        if narrow is None or not isinstance(weights, GenericConst) or len(weights.ty.shape) < 2:
            return self._shifted(call)
        sums = weights.value.numpy().sum(axis=-2, keepdims=True, dtype="int32")
        product = self.builder_.emit(relax.op.matmul(narrow, weights, out_dtype="int32"))
        return self._less(product, zero, sums)

    def _shifted(self, call: Any) -> Any:
        """Return a product of factors in 16 bits, if both have their zero points in there."""
        factors = [self._in_16_bits(each) for each in call.args]
        if any(each is None for each in factors):
            return call
        return relax.op.matmul(*factors, out_dtype="int32")

    def _in_16_bits(self, value: Any) -> Any:
        """Return bytes, without their constant zero point if there is one, in 16 bits."""
        narrow = self._narrow(value)
        zero: Any = np.zeros((), "int32")
        if narrow is None:
            bound = bound_call(self, value, "relax.subtract")
            narrow = None if bound is None else self._narrow(bound.args[0])
            zero = None if bound is None else self._known(bound.args[1])
        if narrow is None or zero is None or zero.size != 1:
            return None
        dtype = str(narrow.ty.dtype)
        if dtype == "int16" and not zero.any():
            return narrow
        if dtype not in ("int8", "uint8") or not -128 <= int(zero.item()) <= 255:
            return None
        wide = self.builder_.emit(relax.op.astype(narrow, "int16"))
        if not zero.any():
            return wide
        least = relax.const(zero.astype("int16").reshape(()))
        return self.builder_.emit(relax.op.subtract(wide, least))

    def _convolution(self, call: Any) -> Any:
        """Return a convolution of narrow integers with constant weights."""
        data, weights = call.args[0], self._narrow(call.args[1])
        if not isinstance(weights, GenericConst):
            return call
        narrow, zero = self._narrow(data), None
        if narrow is None:
            narrow, zero = self._without_zero_point(data)
        if narrow is None or (
            zero is not None and not all(is_constant(size, 1) for size in zero.ty.shape)
        ):
            return call
        known = None if zero is None else self._known(zero)
        number = 0 if zero is None else (None if known is None else int(known.item()))
        if not any(map(int, call.attrs.padding)):
            made = unbordered(call, narrow, weights)
        elif number == 0 and str(narrow.ty.dtype) != "int8":
            made = unbordered(call, narrow, weights)
        else:
            around = self._border(narrow, zero, number)
            if around is None:
                return call
            made, shift = bordered(self.builder_, call, narrow, weights, *around)
            number = None if number is None else number + shift
            if number is None and shift:
                zero = self.builder_.emit(relax.op.add(zero, relax.const(shift, "int32")))
        if number == 0:
            return made
        layout, kernel = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
        axes = tuple(at for at, axis in enumerate(kernel) if axis != "O")
        sums = weights.value.numpy().sum(axis=axes, dtype="int32")
        sums = sums.reshape([-1 if axis == "C" else 1 for axis in layout])
        if number is not None:
            zero = relax.const(np.full((), number, "int32"))
        return self._less(self.builder_.emit(made), zero, sums)

    def _border(self, narrow: Any, zero: Any, number: int | None) -> tuple[Any, int] | None:
        """Return a zero point that is not constant and one that is; None for one out of range."""
        dtype = str(narrow.ty.dtype)
        if number is not None:
            ends = np.iinfo(dtype)
            return (None, number) if ends.min <= number <= ends.max else None
        before = self._narrow(zero)
        return (before, 0) if before is not None and str(before.ty.dtype) == dtype else None

    def _less(self, product: Any, zero: Any, sums: np.ndarray) -> Any:
        """Return a product without what its zero point adds to it."""
        known = self._known(zero)
        if known is not None:
            # Modulo 2^32, as integers wrap around.
            added = -(known.astype("int64") * sums)
            return relax.op.add(product, relax.const(added.astype("int32"), "int32"))
        correction = self.builder_.emit(relax.op.multiply(zero, relax.const(sums)))
        return relax.op.subtract(product, correction)

    def _sum(self, call: Any) -> Any:
        """Return a sum with two constants, as of a zero point and a bias, as one with their sum."""
        inner = bound_call(self, call.args[0], "relax.add")
        if inner is None:
            return call
        constants = [inner.args[1], call.args[1]]
        if not all(isinstance(each, GenericConst) for each in constants):
            return call
        first, second = (each.value.numpy().astype("int64") for each in constants)
        both = (first + second).astype("int32")
        sizes = [each.size for each in (first, second)]
        # Not more than there was: one number for all is not written for each element.
        if math.prod(both.shape) > max(sizes):
            return call
        return relax.op.add(inner.args[0], relax.const(both, "int32"))

    def _narrow(self, value: Any) -> Any:
        """Return a value in a narrow type, None if it is not known to fit in one."""
        if str(getattr(value.ty, "dtype", "")) in NARROW:
            return value
        known = self._known(value)
        if known is not None:
            return _constant(known)
        moved = self._moved(value)
        if moved is not None:
            before = self._narrow(moved.args[0])
            return None if before is None else self._again(before, moved)
        bound = bound_call(self, value, "relax.astype")
        if bound is None:
            return None
        # Of a narrow type, and to 32 bits: every value is the value before.
        before = bound.args[0]
        return before if str(before.ty.dtype) in NARROW else None

    def _without_zero_point(self, value: Any) -> tuple[Any, Any]:
        """Return a narrow value and what is subtracted from it, None if it is something else."""
        moved = self._moved(value)
        if moved is not None:
            narrow, zero = self._without_zero_point(moved.args[0])
            if narrow is None or not all(is_constant(size, 1) for size in zero.ty.shape):
                return None, None
            return self._again(narrow, moved), zero
        bound = bound_call(self, value, "relax.subtract")
        narrow = None if bound is None else self._narrow(bound.args[0])
        if narrow is None or not isinstance(bound.args[1].ty.shape, relax.ShapeExpr):
            return None, None
        zero = bound.args[1]
        rank, sizes = len(narrow.ty.shape or ()), list(zero.ty.shape)
        # Along the products of a sum, it is one number; it does not add axes.
        fits = rank >= 2 and len(sizes) <= rank and (not sizes or is_constant(sizes[-1], 1))
        return (narrow, zero) if fits else (None, None)

    def _moved(self, value: Any) -> Any:
        """Return the call that moves the elements of another value, None if there is none."""
        calls = [bound_call(self, value, name) for name in ("relax.permute_dims", "relax.reshape")]
        return next((call for call in calls if call is not None), None)

    def _again(self, value: Any, moved: Any) -> Any:
        """Return other elements moved in the same way."""
        return self.builder_.emit(with_arguments(moved, [value, *moved.args[1:]]))

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


def _constant(array: np.ndarray) -> Any:
    """Return integers as a constant of the narrowest type that has them, None if none has."""
    if array.size == 0:
        return None
    for dtype in NARROW:
        ends = np.iinfo(dtype)
        if ends.min <= array.min() and array.max() <= ends.max:
            return relax.const(array.astype(dtype), dtype)
    return None
