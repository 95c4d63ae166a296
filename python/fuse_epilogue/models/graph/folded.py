"""Folds operators on constants with NumPy, which TVM would compile a function for, each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir
from tvm.ir import GenericConst
from tvm.relax import Var, const
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import axes_of, constant_shape, graph_pass, rewritten

#: Operators that are rounded correctly, or not at all: NumPy's results are those of any machine.
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.divide": np.divide,
    "relax.multiply": np.multiply,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
    "relax.subtract": np.subtract,
}
_TRANSPOSE = "relax.permute_dims"
_KNOWN = {*_ARITHMETIC, _TRANSPOSE, "relax.expand_dims", "relax.reshape", "relax.squeeze"}
#: Types that NumPy has, too.
_TYPES = ("float32", "float64", "int8", "uint8", "int32", "int64")
_FLOATS = ("float32", "float64")


@graph_pass
def FoldArrays(mod: ir.IRModule) -> ir.IRModule:
    """Compute sums, products and roots of constant floats, and move the elements of constants.

    These are what batch norms and weights in another layout are made of: a network has hundreds.
    """
    return rewritten(mod, _Folder)


@mutator
class _Folder(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return the result of an operator whose arguments are constants."""
        call = self.builder_.normalize(super().visit_call_(call))
        name = operator_name(call)
        if name not in _KNOWN or str(call.ty.dtype) not in _TYPES:
            return call
        tensors = call.args if name in _ARITHMETIC else call.args[:1]
        arrays = [each for each in map(self._array, tensors) if each is not None]
        shape = constant_shape(call)
        if shape is None or len(arrays) < len(tensors):
            return call
        result = arrays[0]
        if name in _ARITHMETIC:
            # A constant that is broadcast is kept as it is: one for each element would be large.
            small = math.prod(shape) <= max(each.size for each in arrays)
            if str(call.ty.dtype) not in _FLOATS or not small:
                return call
            with np.errstate(all="ignore"):
                result = _ARITHMETIC[name](*arrays)
        elif name == _TRANSPOSE:
            result = result.transpose(axes_of(call))
        return const(np.ascontiguousarray(result).reshape(shape), str(call.ty.dtype))

    def _array(self, value: Any) -> np.ndarray | None:
        """Return the elements of a constant, or of a variable that is bound to one."""
        if isinstance(value, Var):
            value = self.lookup_binding(value)
        return value.value.numpy() if isinstance(value, GenericConst) else None
