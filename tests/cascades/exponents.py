"""Exponents that are written in another way than what the maximum is taken over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from .bounded import Bounded, expand
from .case import ROWS, Family
from .softmax import F, X, keys, row_max, row_sum, rows

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse = FAMILY.accept, FAMILY.refuse


def _sum(x: Any, m: Any, n: int, term: Callable[[Any, Any, Any], Any]) -> Any:
    e = te.compute((ROWS, n), lambda i, k: te.exp(term(x[i, k], m[i], k)), name="e")
    return row_sum(e, n)


#: 1 / (1 / 49) is not 49 in doubles.
DIVISOR = 49.0


def _divided(x: Bounded) -> dict[str, Any]:
    return {"s": ((x - expand(x.max())) / DIVISOR).exp().sum()}


@accept("s", _divided, "a part of the difference", logits=X, twin="divided_by_less_than_zero")
def divided_difference(n: int) -> Any:
    x = rows(n)
    return [x, _sum(x, row_max(x, n), n, lambda a, m, k: (a - m) / DIVISOR)]


def _negative(x: Bounded) -> dict[str, Any]:
    return {"s": ((x - expand(x.max())) / -3.0).exp().sum()}


@refuse(
    "s", _negative, "the quotient is above 1", logits=X, finite=True, codes=("cascade-expanding",)
)
def divided_by_less_than_zero(n: int) -> Any:
    x = rows(n)
    return [x, _sum(x, row_max(x, n), n, lambda a, m, k: (a - m) / -3.0)]


def _scaled(x: Bounded) -> dict[str, Any]:
    return {"s": (x * 0.125 - expand(x.max()) * 0.125).exp().sum()}


@accept("s", _scaled, "key and maximum are scaled by the same", logits=X, twin="scaled_by_two")
def scaled_key_and_maximum(n: int) -> Any:
    x = rows(n)
    return [x, _sum(x, row_max(x, n), n, lambda a, m, k: a * 0.125 - m * 0.125)]


def _doubled(x: Bounded) -> dict[str, Any]:
    return {"s": ((x - expand(x.max())) * 2.0).exp().sum()}


@accept("s", _doubled, "the difference is scaled", logits=X, twin="scaled_up_before_the_difference")
def scaled_up_difference(n: int) -> Any:
    x = rows(n)
    return [x, _sum(x, row_max(x, n), n, lambda a, m, k: (a - m) * 2.0)]


def _doubled_before(x: Bounded) -> dict[str, Any]:
    return {"s": (x * 2.0 - expand(x.max()) * 2.0).exp().sum()}


@refuse(
    "s", _doubled_before, "the lowest maximum, doubled, is -inf, and -inf + inf NaN",
    logits=X, codes=("cascade-range",),
)  # fmt: skip
def scaled_up_before_the_difference(n: int) -> Any:
    x = rows(n)
    return [x, _sum(x, row_max(x, n), n, lambda a, m, k: a * 2.0 - m * 2.0)]


def _two_scales(x: Bounded) -> dict[str, Any]:
    return {"s": (x * 0.25 - expand(x.max()) * 0.125).exp().sum()}


@refuse("s", _two_scales, "the exponent is not below 0", logits=X, codes=("cascade-range",))
def scaled_by_two(n: int) -> Any:
    x = rows(n)
    return [x, _sum(x, row_max(x, n), n, lambda a, m, k: a * 0.25 - m * 0.125)]


def _biased(x: Bounded, b: Bounded) -> dict[str, Any]:
    z = x + b
    return {"s": (z - expand(z.max())).exp().sum()}


def _bias(n: int, exponent: Callable[..., Any] | None = None) -> Any:
    x, b, k = rows(n), te.placeholder((n,), F, name="b"), keys(n)
    m = te.compute((ROWS,), lambda i: te.max(x[i, k] + b[k], axis=k), name="m")
    if exponent is not None:
        return [x, b, _sum(x, m, n, lambda a, m, k: exponent(a, b[k], m))]
    s = te.compute(
        (ROWS,), lambda i: te.sum((b[k] + x[i, k]).equal(m[i]).astype("int32"), axis=k), name="s"
    )
    return [x, b, s]


@accept(
    "s", _biased, "the sum that the maximum is taken over",
    logits=X, finite=True, twin="bias_in_other_order",
)  # fmt: skip
def bias_in_its_order(n: int) -> Any:
    return _bias(n, lambda a, b, m: (a + b) - m)


@refuse(
    "s", _biased, "another sum may round to more than 0",
    logits=X, finite=True, codes=("cascade-range",),
)  # fmt: skip
def bias_in_other_order(n: int) -> Any:
    return _bias(n, lambda a, b, m: b + (a - m))


def _equal(x: Bounded, b: Bounded) -> dict[str, Any]:
    z = (x + b).value.astype(F)
    return {"s": (z == z.max(-1, keepdims=True)).sum(1).astype("int32")}


@refuse("s", _equal, "only the same expression rounds the same", logits=X, finite=True)
def equal_in_other_order(n: int) -> Any:
    return _bias(n)


def _gated(x: Bounded, g: Bounded) -> dict[str, Any]:
    return {"s": ((x - expand(x.max())).exp() * g.exp()).sum()}


@accept("s", _gated, "a factor that reads no maximum", logits=X, finite=True, twin="merged_gate")
def gate(n: int) -> Any:
    x, g = rows(n), rows(n, "g")
    m = row_max(x, n)
    e = te.compute((ROWS, n), lambda i, k: te.exp(x[i, k] - m[i]) * te.exp(g[i, k]), name="e")
    return [x, g, row_sum(e, n)]


def _merged(x: Bounded, g: Bounded) -> dict[str, Any]:
    return {"s": (x - expand(x.max()) + g).exp().sum()}


@refuse(
    "s", _merged, "it may overflow where the maximum is not the last one",
    logits=X, finite=True, codes=("cascade-range",),
)  # fmt: skip
def merged_gate(n: int) -> Any:
    x, g = rows(n), rows(n, "g")
    m = row_max(x, n)
    e = te.compute((ROWS, n), lambda i, k: te.exp(x[i, k] - m[i] + g[i, k]), name="e")
    return [x, g, row_sum(e, n)]
