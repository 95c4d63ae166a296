"""Moves elementwise operators before the reshapes that separate them from their producers.

torch.export writes a linear layer as a product of matrices between two reshapes:

    y = reshape(matmul(reshape(x), w));  z = gelu(y + bias)

FuseOps joins no operator to a product across a reshape. After this pass it is

    z = reshape(gelu(matmul(reshape(x), w) + bias))
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import (
    BINARY,
    UNARY,
    bound_call,
    constant_shape,
    graph_pass,
    rewritten,
    with_arguments,
)


@graph_pass
def SinkReshapes(mod: ir.IRModule) -> ir.IRModule:
    """Move reshapes after the elementwise operators that follow them, and join them.

    Only shapes of constants are looked at. A reshape of a whole array is a view at run time, so
    that the operand of another shape costs nothing either.
    """
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Sinker))


@mutator
class _Sinker(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return an operator before a reshape instead of after it."""
        call = super().visit_call_(call)
        name = operator_name(call)
        if name == "relax.reshape":
            source = self._reshaped(call.args[0])
            return call if source is None else relax.op.reshape(source, call.args[1])
        if name in UNARY:
            source = self._reshaped(call.args[0])
            if source is not None:
                return self._after(with_arguments(call, [source, *call.args[1:]]), call)
        if name in BINARY:
            return self._binary(call)
        if name == "relax.matmul":
            return self._flat_product(call)
        return call

    def _flat_product(self, call: Any) -> Any:
        """Return a batch of products with one matrix as one product.

        torch.export broadcasts the matrix first; as a constant, it would be folded into as many.
        """
        left, right = call.args
        matrix = bound_call(self, right, "relax.broadcast_to")
        matrix = right if matrix is None else matrix.args[0]
        rows, shape = constant_shape(left), constant_shape(matrix)
        while shape is not None and len(shape) > 2 and shape[0] == 1:
            shape = shape[1:]
        result = constant_shape(self.builder_.normalize(call))
        if rows is None or shape is None or result is None or len(shape) != 2 or len(rows) < 3:
            return call
        if result[:-1] != rows[:-1]:
            return call
        flat = self.builder_.emit(relax.op.reshape(left, (math.prod(rows[:-1]), rows[-1])))
        if constant_shape(matrix) != shape:
            matrix = self.builder_.emit(relax.op.reshape(matrix, shape))
        product = self.builder_.emit(with_arguments(call, [flat, matrix]))
        return relax.op.reshape(product, result)

    def _binary(self, call: Any) -> Any:
        for place, other in ((0, 1), (1, 0)):
            source = self._reshaped(call.args[place])
            shape, result = constant_shape(source), constant_shape(self.builder_.normalize(call))
            if source is None or shape is None or result is None:
                continue
            if constant_shape(call.args[place]) != result:
                continue
            operand = self._operand(call.args[other], shape, result)
            if operand is not None:
                arguments = [source, operand] if place == 0 else [operand, source]
                return self._after(with_arguments(call, arguments), call)
        return call

    def _operand(self, operand: Any, shape: list[int], result: list[int]) -> Any:
        """Return the other operand for a result of another shape, None if there is none."""
        own = constant_shape(operand)
        if own is None:
            return None
        while own and own[0] == 1 and len(own) > 1:
            own = own[1:]
        if math.prod(own) == 1:
            if not isinstance(operand, GenericConst):
                return None
            return relax.const(operand.value.numpy().reshape(()), operand.ty.dtype)
        if constant_shape(operand) == result:
            source = self._reshaped(operand)
            if source is not None and constant_shape(source) == shape:
                return source
            return self.builder_.emit(relax.op.reshape(operand, shape))
        # A bias: the axes that it has are the last ones before and after.
        if (
            len(own) == len(constant_shape(operand) or [])
            and own == shape[-len(own) :] == result[-len(own) :]
        ):
            return operand
        return None

    def _after(self, moved: Any, call: Any) -> Any:
        """Return what was moved before a reshape, reshaped."""
        shape = constant_shape(self.builder_.normalize(call))
        return relax.op.reshape(self.builder_.emit(moved), shape)

    def _reshaped(self, value: Any) -> Any:
        """Return what a reshape is of, None for any other value."""
        bound = bound_call(self, value, "relax.reshape")
        if bound is None or constant_shape(bound.args[0]) is None or constant_shape(value) is None:
            return None
        return bound.args[0]
