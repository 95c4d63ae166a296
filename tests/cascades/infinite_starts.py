"""Maxima that start at -inf and minima that start at +inf: rows of such keys alone, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from .bounded import Bounded, expand, where
from .case import COLUMNS, ROWS, Family
from .norms import stable_norm_of
from .softmax import MASK, F, X, exps, from_infinity, keys, row_sum, rows

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse, either = FAMILY.accept, FAMILY.refuse, FAMILY.either

MASKED = tirx.const(-np.inf, F)
START = ("cascade-start",)


def row_max(x: Any, n: Any, name: str = "m") -> Any:
    k, highest = keys(n), from_infinity()
    return te.compute((ROWS,), lambda i: highest(x[i, k], axis=k), name=name)


def largest(x: Bounded) -> Bounded:
    """The maximum of each row, from -inf."""
    return Bounded(x.value.max(-1), x.error.max(-1), x.rules)


def softmax_of(x: Bounded) -> Bounded:
    e = (x - expand(largest(x))).exp()
    return e / expand(e.sum())


def logsumexp_of(x: Bounded) -> Bounded:
    m = largest(x)
    return (x - expand(m)).exp().sum().log() + m


def _log_sum(term: Callable[..., Any], x: Any, m: Any, n: int) -> Any:
    e = te.compute((ROWS, n), lambda i, k: term(x[i, k], m[i]), name="e")
    s = row_sum(e, n)
    return [x, te.compute((ROWS,), lambda i: te.log(s[i]) + m[i], name="y")]


# ---- Accepted --------------------------------------------------------------------------------


@accept(
    "s", lambda x: {"y": logsumexp_of(x)}, "0 in place of -inf; NaN at the end if it stays",
    logits=X, twin="distance_from_infinity",
)  # fmt: skip
def logsumexp_from_infinity(n: int) -> Any:
    x = rows(n)
    return _log_sum(lambda a, m: te.exp(a - m), x, row_max(x, n), n)


def _scaled(x: Bounded) -> dict[str, Any]:
    m = largest(x)
    e = ((x - expand(m)) * 0.25).exp()
    return {"y": e.sum().log() + m}


@accept("s", _scaled, "scaled after the difference", logits=X)
def scaled_difference_from_infinity(n: int) -> Any:
    x = rows(n)
    return _log_sum(lambda a, m: te.exp((a - m) * 0.25), x, row_max(x, n), n)


def _masked(x: Bounded, mask: np.ndarray) -> dict[str, Any]:
    return {"y": softmax_of(where(mask != 0, x, np.float32(-np.inf)))}


def masked_keys(x: Any, mask: Any, n: int) -> Any:
    def at(i: Any, k: Any) -> Any:
        return te.if_then_else(mask[i, k] != 0, x[i, k], MASKED)

    return te.compute((ROWS, n), at, name="z")


@accept(
    "s", _masked, "the keys are masked, not the terms: a masked row is NaN",
    logits=X, ranges=MASK, twin="masked_terms_from_infinity",
)  # fmt: skip
def softmax_masked_from_infinity(n: int) -> Any:
    x, mask = rows(n), rows(n, "mask", "int8")
    z = masked_keys(x, mask, n)
    e = exps(z, row_max(z, n), n)
    s = row_sum(e, n)
    return [x, mask, te.compute((ROWS, n), lambda i, k: e[i, k] / s[i], name="y")]


def _attention(x: Bounded, v: Bounded) -> dict[str, Any]:
    return {"o": (expand(softmax_of(x)) * expand(v, 0)).sum(1)}


@accept(
    "o", _attention, "roll and defer: a masked block leaves 0, or NaN for 0 times inf",
    logits={"x": 1}, twin="other_order_from_infinity",
)  # fmt: skip
def weighted_sum_from_infinity(n: int) -> Any:
    x, v = rows(n), te.placeholder((n, COLUMNS), F, name="v")
    e = exps(x, row_max(x, n), n)
    s = row_sum(e, n)
    p = te.compute((ROWS, n), lambda i, k: e[i, k] / s[i], name="p")
    k = keys(n)
    o = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(p[i, k] * v[k, j], axis=k), name="o")
    return [x, v, o]


def _below(x: Bounded) -> dict[str, Any]:
    lowest = Bounded(x.value.min(-1), x.error.max(-1), x.rules)
    return {"s": (expand(lowest) - x).exp().sum()}


@accept("s", _below, "a minimum that starts at +inf", logits=X)
def minimum_from_infinity(n: int) -> Any:
    x, k = rows(n), keys(n)
    lowest = te.comm_reducer(lambda a, b: te.min(a, b), lambda t: tirx.const(np.inf, t))
    m = te.compute((ROWS,), lambda i: lowest(x[i, k], axis=k), name="m")
    e = te.compute((ROWS, n), lambda i, k: te.exp(m[i] - x[i, k]), name="e")
    return [x, row_sum(e, n)]


def _count(x: Bounded) -> dict[str, Any]:
    return {"s": (x.value == x.value.max(-1, keepdims=True)).sum(1).astype("int32")}


@accept("s", _count, "equal infinities are equal keys", logits=X, nan=False)
def count_from_infinity(n: int) -> Any:
    x, k = rows(n), keys(n)
    m = row_max(x, n)
    s = te.compute((ROWS,), lambda i: te.sum(x[i, k].equal(m[i]).astype("int32"), axis=k), name="s")
    return [x, s]


@accept("s", stable_norm_of, "a magnitude is not negative after the first key", logits=X)
def stable_norm_from_infinity(n: int) -> Any:
    x, k = rows(n), keys(n)
    magnitude = te.compute((ROWS, n), lambda i, k: te.abs(x[i, k]), name="a")
    m = row_max(magnitude, n)
    s = te.compute((ROWS,), lambda i: te.sum((x[i, k] / m[i]) * (x[i, k] / m[i]), axis=k), name="s")
    return [x, te.compute((ROWS,), lambda i: m[i] * te.sqrt(s[i]), name="y")]


# ---- Refused ---------------------------------------------------------------------------------


def _distance(x: Bounded) -> dict[str, Any]:
    return {"s": (expand(largest(x)) - x).sum()}


@refuse("s", _distance, "inf - inf is in the first blocks alone", logits=X, codes=START)
def distance_from_infinity(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = te.compute((ROWS, n), lambda i, k: m[i] - x[i, k], name="e")
    return [x, row_sum(e, n)]


def _masked_terms(x: Bounded, mask: np.ndarray) -> dict[str, Any]:
    z = where(mask != 0, x, np.float32(-np.inf))
    e = (z - expand(largest(z))).exp()
    return {"s": where(mask != 0, e, np.float32(0)).sum()}


@refuse(
    "s", _masked_terms, "a masked row is 0, a row of -inf is NaN",
    logits=X, ranges=MASK, codes=START,
)  # fmt: skip
def masked_terms_from_infinity(n: int) -> Any:
    x, mask = rows(n), rows(n, "mask", "int8")
    z = masked_keys(x, mask, n)
    m = row_max(z, n)

    def at(i: Any, k: Any) -> Any:
        return te.if_then_else(mask[i, k] != 0, te.exp(z[i, k] - m[i]), tirx.const(0.0, F))

    e = te.compute((ROWS, n), at, name="e")
    return [x, mask, row_sum(e, n)]


def _reordered(x: Bounded, v: Bounded) -> dict[str, Any]:
    m = largest(x + v)
    return {"s": (x + (v - expand(m))).exp().sum()}


@refuse("s", _reordered, "x + v overflows, x + (v - m) does not", logits=X, codes=START)
def other_order_from_infinity(n: int) -> Any:
    x, v = rows(n), rows(n, "v")
    z = te.compute((ROWS, n), lambda i, k: x[i, k] + v[i, k], name="z")
    m = row_max(z, n)
    e = te.compute((ROWS, n), lambda i, k: te.exp(x[i, k] + (v[i, k] - m[i])), name="e")
    return [x, v, row_sum(e, n)]
