"""Operators that TVM's own passes misread or cannot compile, written in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import constant_shape, graph_pass, rewritten


@graph_pass
def WriteOut(mod: ir.IRModule) -> ir.IRModule:
    """Write out hyperbolic functions, and batch norms in training.

    TVM has no code for the first on processors; its passes for inference take the statistics of
    training instead of the batch's own.
    """
    return rewritten(mod, _Rewriter)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return other operators in place of one of these."""
        call = super().visit_call_(call)
        rule = _RULES.get(operator_name(call))
        return call if rule is None else rule(call, self.builder_.emit)


Emit = Callable[[Any], Any]


def _hyperbolic(call: Any, emit: Emit) -> Any:
    """Write a hyperbolic function of a float with exponentials.

    The exponential of half the size comes first: that of all of it may be infinite where the result
    is not. The difference of exponentials loses the digits of small values, which a series has.
    """
    x, dtype = call.args[0], str(call.args[0].ty.dtype)

    def number(value: float) -> Any:
        return relax.const(value, dtype)

    op = relax.op
    half = number(0.5)
    root = emit(op.exp(emit(op.multiply(emit(op.abs(x)), half))))
    grows = emit(op.multiply(emit(op.multiply(root, half)), root))
    falls = emit(op.divide(half, emit(op.multiply(root, root))))
    if operator_name(call) == "relax.cosh":
        return op.add(grows, falls)
    square = emit(op.multiply(x, x))
    series = number(1)
    # x + x^3 / 3! + ... + x^11 / 11!
    for divisor in (110, 72, 42, 20, 6):
        term = emit(op.multiply(emit(op.multiply(square, series)), number(1 / divisor)))
        series = emit(op.add(number(1), term))
    size = emit(op.multiply(emit(op.subtract(grows, falls)), emit(op.sign(x))))
    is_small = emit(op.less(square, number(1)))
    return op.where(is_small, emit(op.multiply(x, series)), size)


def _normalized(call: Any, emit: Emit) -> Any:
    """Normalise a batch by its own mean and variance, and update those of training."""
    data, gamma, beta, mean, variance = call.args
    attributes, shape = call.attrs, constant_shape(call.args[0])
    if not attributes.training or shape is None:
        return call
    op, axis = relax.op, int(attributes.axis) % len(shape)
    others = [place for place in range(len(shape)) if place != axis]
    wide = [size if place == axis else 1 for place, size in enumerate(shape)]
    dtype = str(data.ty.dtype)

    def number(value: float) -> Any:
        return relax.const(value, dtype)

    own = [emit(rule(data, others)) for rule in (op.mean, op.variance)]
    around, spread = (emit(op.reshape(each, wide)) for each in own)
    scale = emit(op.rsqrt(emit(op.add(spread, number(attributes.epsilon)))))
    result = emit(op.multiply(emit(op.subtract(data, around)), scale))
    if attributes.scale:
        result = emit(op.multiply(result, emit(op.reshape(gamma, wide))))
    if attributes.center:
        result = emit(op.add(result, emit(op.reshape(beta, wide))))
    moved = [
        emit(op.add(op.multiply(old, number(1 - part)), op.multiply(new, number(part))))
        for part in [float(attributes.momentum)]
        for old, new in zip((mean, variance), own, strict=True)
    ]
    return relax.Tuple([result, *moved])


_RULES: dict[str, Callable[[Any, Emit], Any]] = {
    "relax.cosh": _hyperbolic,
    "relax.nn.batch_norm": _normalized,
    "relax.sinh": _hyperbolic,
}
