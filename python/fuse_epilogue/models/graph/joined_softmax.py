"""Computes a softmax of columns that are joined to others, of which only the former are read.

So attention sinks are written: a logit of each head takes part in the denominator.

    p = softmax(concat(x, t))[..., :n]

    m = max(x);  e = exp(x - m);  M = maximum(m, t);  p = e / (sum(e) + exp(t - M) / exp(m - M))

After this pass no joined array is computed, and attention is one function. Exponentials are of
numbers up to 0, as in the softmax. A softmax whose operand is less its maximum is one of the
operand: the maximum of the difference is 0.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.affine import is_constant
from .rewriting import bound_call, graph_pass, known_shape, rewritten


@graph_pass
def SplitJoinedSoftmax(mod: ir.IRModule) -> ir.IRModule:
    """Compute a softmax without columns that only its denominator needs."""
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Splitter))


@mutator
class _Splitter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a slice of a softmax as a quotient; a softmax of what its operand is without."""
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name == "relax.nn.softmax" and _is_last(call):
            operand = self._without_maximum(call.args[0])
            return call if operand is None else relax.op.nn.softmax(operand, axis=-1)
        if name != "relax.strided_slice":
            return call
        parts = self._parts(call)
        return call if parts is None else self._quotient(*parts)

    def _without_maximum(self, value: Any) -> Any:
        """Return x of ``x - max(x)`` along the last axis, None for anything else."""
        less = bound_call(self, value, "relax.subtract")
        highest = None if less is None else bound_call(self, less.args[1], "relax.max")
        if less is None or highest is None or not highest.args[0].same_as(less.args[0]):
            return None
        axes, rank = highest.attrs.axis, int(highest.args[0].ty.ndim)
        last = axes is not None and [int(axis) % rank for axis in axes] == [rank - 1]
        return less.args[0] if last and bool(highest.attrs.keepdims) else None

    def _parts(self, call: Any) -> tuple[Any, Any] | None:
        """Return the columns that are read and one other, None unless it is a slice of those."""
        softmax = bound_call(self, call.args[0], "relax.nn.softmax")
        if softmax is None or not _is_last(softmax):
            return None
        joined = bound_call(self, softmax.args[0], "relax.concat")
        rank = int(softmax.ty.ndim)
        if joined is None or int(joined.attrs.axis) % rank != rank - 1:
            return None
        fields = joined.args[0]
        fields = self.lookup_binding(fields) if isinstance(fields, relax.Var) else fields
        if not isinstance(fields, relax.Tuple) or len(fields.fields) != 2:
            return None
        begins = _last_begin(call, rank)
        for place, own in enumerate(fields.fields):
            other = fields.fields[1 - place]
            size = known_shape(other)
            if (
                begins == place
                and size is not None
                and is_constant(size[-1], 1)
                and _same(call, own)
            ):
                return own, other
        return None

    def _quotient(self, own: Any, other: Any) -> Any:
        """Return the softmax of some columns, with another one in the denominator."""
        op, emit = relax.op, self.builder_.emit
        highest = emit(op.max(own, -1, keepdims=True))
        shares = emit(op.exp(emit(op.subtract(own, highest))))
        total = emit(op.sum(shares, -1, keepdims=True))
        above = emit(op.maximum(highest, other))
        more = emit(op.exp(emit(op.subtract(other, above))))
        factor = emit(op.exp(emit(op.subtract(highest, above))))
        return op.divide(shares, emit(op.add(total, emit(op.divide(more, factor)))))


def _is_last(softmax: Any) -> bool:
    rank = int(softmax.args[0].ty.ndim)
    return int(softmax.attrs.axis) % rank == rank - 1


def _last_begin(call: Any, rank: int) -> int | None:
    """Return where a slice begins on the last axis, None if it has steps or others are sliced."""
    axes, begins = (_numbers(each) for each in call.args[1:3])
    strides = _numbers(call.args[4]) if len(call.args) > 4 else [1] * len(axes or ())
    if axes is None or begins is None or strides is None or set(strides) - {1}:
        return None
    table = {axis % rank: begin for axis, begin in zip(axes, begins, strict=True)}
    last = table.pop(rank - 1, 0)
    return last if not any(table.values()) else None


def _numbers(value: Any) -> list[int] | None:
    """Return the integers of a tuple, None if one is not constant."""
    found = []
    for each in getattr(value, "fields", value):
        number = getattr(each, "value", each)
        number = getattr(number, "value", number)
        if not isinstance(number, int):
            return None
        found.append(number)
    return found


def _same(call: Any, own: Any) -> bool:
    """Whether a slice has the shape of a part."""
    shapes = [known_shape(each) for each in (call, own)]
    return None not in shapes and bool(tvm_ffi.structural_equal(*shapes))
