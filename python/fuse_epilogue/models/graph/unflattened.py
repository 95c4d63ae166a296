"""Computes batches of products in the shape of their batch axes.

torch.export makes one axis of all batch axes of a product, and several of them again after it:

    y = reshape(matmul(reshape(a), reshape(b)))  ->  y = matmul(a, b)

Heads that share keys may be rows of one product after it: they become axes again, too.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.shapes import is_same_count
from ...tir.walk import operator_name
from .rewriting import bound_call, graph_pass, known_shape, rewritten, with_arguments


@graph_pass
def UnflattenProducts(mod: ir.IRModule) -> ir.IRModule:
    """Move reshapes that join the batch axes of an operand of a product after the product."""
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Unflattener))


@mutator
class _Unflattener(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a product before a reshape instead of after it; join reshapes."""
        call = super().visit_call_(call)
        name = operator_name(call)
        if name == "relax.reshape":
            source = self._source(call.args[0])
            return call if source is None else relax.op.reshape(source, call.args[1])
        if name != "relax.matmul":
            return call
        batch = next(filter(None, map(self._joined, call.args)), None)
        left, right = map(known_shape, call.args)
        if left is None or right is None or len(left) != len(right) or len(left) not in (2, 3):
            return call
        if batch is None:
            return self._by_rows(call, left, right)
        operands = [
            self.builder_.emit(relax.op.reshape(self._origin(each), (*batch, *shape[-2:])))
            for each, shape in zip(call.args, (left, right), strict=True)
        ]
        product = self.builder_.emit(with_arguments(call, operands))
        return relax.op.reshape(product, (left[0], left[1], right[2]))

    def _by_rows(self, call: Any, left: list[Any], right: list[Any]) -> Any:
        """Return a product in the shape of axes that a reshape makes rows of.

        So einsum writes heads that share keys: as rows of one product with them.
        """
        source = known_shape(self._source(call.args[0])) or []
        wide = [size for size in source if not is_same_count([size], ())]
        batch, rows = left[:-2], left[-2:-1]
        for at in range(len(wide) - 2):
            pairs = ((wide[:at], batch), (wide[at:-1], rows), (wide[-1:], left[-1:]))
            if not all(is_same_count(*pair) for pair in pairs):
                continue
            ones = [1] * (len(wide) - 2 - at)
            emit, reshape = self.builder_.emit, relax.op.reshape
            several = emit(reshape(self._origin(call.args[0]), wide))
            columns = emit(reshape(call.args[1], (*wide[:at], *ones, *right[-2:])))
            product = emit(with_arguments(call, [several, columns]))
            return reshape(product, (*left[:-1], right[-1]))
        return call

    def _joined(self, value: Any) -> list[Any] | None:
        """Return the axes that a reshape makes the first one of three of, None if it does not."""
        source = known_shape(self._source(value))
        shape = known_shape(value)
        if source is None or shape is None or len(source) < 4 or len(shape) != 3:
            return None
        pairs = ((source[:-2], shape[:1]), (source[-2:-1], shape[1:2]), (source[-1:], shape[2:]))
        return source[:-2] if all(is_same_count(*pair) for pair in pairs) else None

    def _origin(self, value: Any) -> Any:
        source = self._source(value)
        return value if source is None else source

    def _source(self, value: Any) -> Any:
        """Return what a reshape is of, None for any other value."""
        bound = bound_call(self, value, "relax.reshape")
        return None if bound is None else bound.args[0]
