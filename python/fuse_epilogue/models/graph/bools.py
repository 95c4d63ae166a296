"""Comparisons and sums of bools, on numbers: TVM's code for processors has none of bools."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax
from tvm.ir import Call
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import graph_pass, rewritten

_COMPARISONS = frozenset(
    f"relax.{name}"
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
)
#: By the operator of numbers: that of bools with the same result, which is a bool.
_LOGICAL = {
    "relax.add": relax.op.logical_or,
    "relax.maximum": relax.op.logical_or,
    "relax.multiply": relax.op.logical_and,
    "relax.minimum": relax.op.logical_and,
}


@graph_pass
def BoolsAsNumbers(mod: ir.IRModule) -> ir.IRModule:
    """Compare bools as numbers of 8 bits, and write their sums and products as or and and."""
    return rewritten(mod, _Rewriter)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return an operator on two bools as one that can be compiled."""
        call = super().visit_call_(call)
        name = operator_name(call)
        if name not in _COMPARISONS and name not in _LOGICAL:
            return call
        if not all(_is_bool(each) for each in call.args):
            return call
        if name in _LOGICAL:
            return _LOGICAL[name](*call.args)
        numbers = [self.builder_.emit(relax.op.astype(each, "int8")) for each in call.args]
        return Call(call.op, numbers, call.attrs, call.ty_args)


def _is_bool(value: Any) -> bool:
    return str(getattr(value.ty, "dtype", "")) == "bool"
