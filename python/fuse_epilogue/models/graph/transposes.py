"""Moves transpositions after the elementwise operators that follow them, where they cancel.

TVM's conversion of layouts knows only some elementwise operators, and transposes before and after
each of the others:

    y = transpose(conv2d(x));  z = transpose(clip(y))

FuseOps joins no operator to a convolution across a transposition. After this pass it is

    z = clip(conv2d(x))
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import BINARY, UNARY, axes_of, bound_call, graph_pass, rewritten, with_arguments

_TRANSPOSE = "relax.permute_dims"
_SEVERAL = BINARY | frozenset(
    f"relax.{name}"
    for name in (
        *("equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or"),
        *("not_equal", "where"),
    )
)


@graph_pass
def SinkTransposes(mod: ir.IRModule) -> ir.IRModule:
    """Move transpositions after elementwise operators, and join those that meet.

    An operator of several operands is moved where those that are not scalars are all transposed in
    the same way.
    """
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Sinker))


@mutator
class _Sinker(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return an operator before a transposition instead of after it."""
        call = super().visit_call_(call)
        name = operator_name(call)
        if name == _TRANSPOSE:
            return self._joined(call)
        if name in UNARY:
            source = self._transposed(call.args[0])
            return (
                call if source is None else self._after([source[0], *call.args[1:]], call, source)
            )
        return self._several(call) if name in _SEVERAL else call

    def _joined(self, call: Any) -> Any:
        """Return two transpositions as one, or as none."""
        source, axes = self._transposed(call.args[0]), axes_of(call)
        if source is None:
            return call
        both = [source[1][axis] for axis in axes]
        return source[0] if both == sorted(both) else relax.op.permute_dims(source[0], both)

    def _several(self, call: Any) -> Any:
        sources = [self._transposed(operand) for operand in call.args]
        known = [source for source in sources if source is not None]
        if not known or any(source[1] != known[0][1] for source in known):
            return call
        arguments = []
        for operand, source in zip(call.args, sources, strict=True):
            if source is None and getattr(operand.ty, "ndim", -1) != 0:
                return call
            arguments.append(operand if source is None else source[0])
        return self._after(arguments, call, known[0])

    def _after(self, arguments: list[Any], call: Any, source: tuple[Any, list[int]]) -> Any:
        """Return a call on other arguments, and transposed as its own were."""
        moved = self.builder_.emit(with_arguments(call, arguments))
        return relax.op.permute_dims(moved, source[1])

    def _transposed(self, value: Any) -> tuple[Any, list[int]] | None:
        """Return what a value is the transposition of, and its axes; None for any other value."""
        bound = bound_call(self, value, _TRANSPOSE)
        return None if bound is None else (bound.args[0], axes_of(bound))
