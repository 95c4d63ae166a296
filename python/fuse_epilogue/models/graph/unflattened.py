"""Computes batches of products in the shape of their batch axes.

torch.export makes one axis of all batch axes of a product, and several of them again after it:

    y = reshape(matmul(reshape(a), reshape(b)))  ->  y = matmul(a, b)
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .rewriting import bound_call, constant_shape, graph_pass, rewritten, with_arguments


@graph_pass
def UnflattenProducts(mod: ir.IRModule) -> ir.IRModule:
    """Move reshapes that join the batch axes of an operand of a product after the product."""
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Unflattener))


@mutator
class _Unflattener(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a product before a reshape instead of after it; join reshapes."""
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name == "relax.reshape":
            source = self._source(call.args[0])
            return call if source is None else relax.op.reshape(source, call.args[1])
        if name != "relax.matmul":
            return call
        batch = next(filter(None, map(self._joined, call.args)), None)
        left, right = map(constant_shape, call.args)
        if batch is None or left is None or right is None or len(left) != 3 or len(right) != 3:
            return call
        operands = [
            self.builder_.emit(relax.op.reshape(self._origin(each), (*batch, *shape[-2:])))
            for each, shape in zip(call.args, (left, right), strict=True)
        ]
        product = self.builder_.emit(with_arguments(call, operands))
        return relax.op.reshape(product, (left[0], left[1], right[2]))

    def _joined(self, value: Any) -> list[int] | None:
        """Return the axes that a reshape makes the first one of three of, None if it does not."""
        source = constant_shape(self._source(value))
        shape = constant_shape(value)
        if source is None or shape is None or len(source) < 4 or len(shape) != 3:
            return None
        if [math.prod(source[:-2]), *source[-2:]] != shape:
            return None
        return source[:-2]

    def _origin(self, value: Any) -> Any:
        source = self._source(value)
        return value if source is None else source

    def _source(self, value: Any) -> Any:
        """Return what a reshape is of, None for any other value."""
        bound = bound_call(self, value, "relax.reshape")
        return None if bound is None else bound.args[0]
