"""Scales of rows: the largest magnitude, ranges, and products with what they scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from .bounded import Bounded, expand
from .case import COLUMNS, ROWS, Family
from .norms import product_of
from .softmax import F, X, keys, rows

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse, either = FAMILY.accept, FAMILY.refuse, FAMILY.either


def _largest(x: Any, n: Any) -> Any:
    k = keys(n)
    return te.compute((ROWS,), lambda i: te.max(te.abs(x[i, k]), axis=k), name="m")


def _scaled_product(n: int, quantised: bool) -> Any:
    x, w, k = rows(n), te.placeholder((COLUMNS, n), F, name="w"), keys(n)
    m = _largest(x, n)

    def scaled(i: Any, k: Any) -> Any:
        value = x[i, k] * (127.0 / (m[i] + 1e-6))
        return te.round(value).astype("int8").astype(F) if quantised else value

    a = te.compute((ROWS, n), scaled, name="a")
    grid = (ROWS, COLUMNS)
    y = te.compute(grid, lambda i, j: te.sum(a[i, k] * w[j, k], axis=k), name="y")
    return [x, w, y]


def _scaled(x: Bounded, w: Bounded) -> dict[str, Any]:
    scale = 127.0 / (x.abs().max() + 1e-6)
    return {"y": product_of(x * expand(scale), w)}


@accept("y", _scaled, "the scale is deferred", logits=X, finite=True, twin="quantised_product")
def scaled_product(n: int) -> Any:
    return _scaled_product(n, quantised=False)


def _quantised(x: Bounded, w: Bounded) -> dict[str, Any]:
    scale = 127.0 / (x.abs().max() + 1e-6)
    a = x * expand(scale)
    rounded = Bounded(np.round(a.value), (abs(a.value % 1 - 0.5) < 1e-3) * 1.0, a.rules)
    return {"y": product_of(rounded, w)}


@refuse("y", _quantised, "rounded by the scale of the whole row", logits=X, finite=True)
def quantised_product(n: int) -> Any:
    return _scaled_product(n, quantised=True)


# ---- Sums of distances -----------------------------------------------------------------------


def _range(x: Bounded) -> dict[str, Any]:
    low, high = x.min(), x.max()
    return {"y": (x - expand(low)).sum() / (high - low)}


@accept("s", _range, "a basis of two: the sum and a count", logits=X, finite=True)
def distance_from_the_lowest(n: int) -> Any:
    x, k, l, c = rows(n), keys(n), keys(n, "l"), keys(n, "c")
    low = te.compute((ROWS,), lambda i: te.min(x[i, k], axis=k), name="low")
    high = te.compute((ROWS,), lambda i: te.max(x[i, l], axis=l), name="high")
    s = te.compute((ROWS,), lambda i: te.sum(x[i, c] - low[i], axis=c), name="s")
    return [x, te.compute((ROWS,), lambda i: s[i] / (high[i] - low[i]), name="y")]


@accept("s", lambda x: {"s": _range(x)["y"]}, "divided after the loop", logits=X, finite=True)
def distance_within_its_range(n: int) -> Any:
    x, k, l, c = rows(n), keys(n), keys(n, "l"), keys(n, "c")
    low = te.compute((ROWS,), lambda i: te.min(x[i, k], axis=k), name="low")
    high = te.compute((ROWS,), lambda i: te.max(x[i, l], axis=l), name="high")
    s = te.compute(
        (ROWS,), lambda i: te.sum((x[i, c] - low[i]) / (high[i] - low[i]), axis=c), name="s"
    )
    return [x, s]


def _integer_distance(x: np.ndarray) -> dict[str, Any]:
    wide = x.astype("int32")
    return {"s": (wide - wide.max(1, keepdims=True)).sum(1, dtype="int32")}


@either("s", _integer_distance, "integers: exact", numerics="exact")
def integer_distance(n: int) -> Any:
    x, k, l = rows(n, dtype="int8"), keys(n), keys(n, "l")
    m = te.compute((ROWS,), lambda i: te.max(x[i, k].astype("int32"), axis=k), name="m")
    s = te.compute((ROWS,), lambda i: te.sum(x[i, l].astype("int32") - m[i], axis=l), name="s")
    return [x, s]


def _wide_distance(x: np.ndarray) -> dict[str, Any]:
    wide = x.astype("int64")
    over = wide - wide.max(1, keepdims=True) - np.int64(2**62)
    return {"s": over.sum(1, dtype="int64")}


@either("s", _wide_distance, "a literal with which the difference may overflow", numerics="exact")
def integer_distance_near_the_end(n: int) -> Any:
    x, k, l = rows(n, dtype="int8"), keys(n), keys(n, "l")
    literal = tirx.const(2**62, "int64")
    m = te.compute((ROWS,), lambda i: te.max(x[i, k].astype("int64"), axis=k), name="m")
    s = te.compute(
        (ROWS,), lambda i: te.sum(x[i, l].astype("int64") - m[i] - literal, axis=l), name="s"
    )
    return [x, s]
