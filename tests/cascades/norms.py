"""Norms: sums of squares, variances, and what they scale."""

from __future__ import annotations

from typing import Any

from tvm import te

from .bounded import Bounded, expand
from .case import COLUMNS, ROWS, Family
from .softmax import F, X, keys, rows

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse, either = FAMILY.accept, FAMILY.refuse, FAMILY.either

#: Added under the root.
EPSILON = 1e-5


def _matrix(n: Any, name: str = "w") -> Any:
    return te.placeholder((COLUMNS, n), F, name=name)


def _squares(x: Any, n: Any) -> Any:
    k = keys(n)
    return te.compute((ROWS,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="ss")


def _times(a: Any, w: Any, n: Any) -> Any:
    k = keys(n)
    grid = (ROWS, COLUMNS)
    return te.compute(grid, lambda i, j: te.sum(a[i, k] * w[j, k], axis=k), name="y")


def product_of(a: Bounded, w: Bounded) -> Bounded:
    return (expand(a, 1) * expand(w, 0)).sum()


# ---- RMS norm, then a product ----------------------------------------------------------------


def _rms(x: Bounded) -> Bounded:
    return ((x * x).sum() * float(1 / x.shape[1]) + EPSILON).rsqrt()


def _rms_product(x: Bounded, w: Bounded) -> dict[str, Any]:
    return {"y": product_of(x * expand(_rms(x)), w)}


@accept("y", _rms_product, "the root is deferred", logits=X, finite=True, twin="rms_norm_clipped")
def rms_norm_then_product(n: int) -> Any:
    x, w = rows(n), _matrix(n)
    ss = _squares(x, n)
    a = te.compute(
        (ROWS, n), lambda i, k: x[i, k] * te.rsqrt(ss[i] * (1.0 / n) + EPSILON), name="a"
    )
    return [x, w, _times(a, w, n)]


def _rms_clipped(x: Bounded, w: Bounded) -> dict[str, Any]:
    a = x * expand(_rms(x))
    clipped = -((-(a.maximum(-1.0))).maximum(-1.0))
    return {"y": product_of(clipped, w)}


@refuse("y", _rms_clipped, "clipped between the root and the sum", logits=X, finite=True)
def rms_norm_clipped(n: int) -> Any:
    x, w = rows(n), _matrix(n)
    ss = _squares(x, n)
    a = te.compute(
        (ROWS, n),
        lambda i, k: te.min(te.max(x[i, k] * te.rsqrt(ss[i] * (1.0 / n) + EPSILON), -1.0), 1.0),
        name="a",
    )
    return [x, w, _times(a, w, n)]


# ---- Variance --------------------------------------------------------------------------------


def _mean(x: Any, n: Any) -> Any:
    k = keys(n)
    total = te.compute((ROWS,), lambda i: te.sum(x[i, k], axis=k), name="sum")
    return te.compute((ROWS,), lambda i: total[i] / n, name="mean")


def _scatter(x: Any, mean: Any, n: Any) -> Any:
    k = keys(n)
    return te.compute(
        (ROWS,),
        lambda i: te.sum((x[i, k] - mean[i]) * (x[i, k] - mean[i]), axis=k),
        name="scatter",
    )


def _variance(x: Bounded) -> dict[str, Any]:
    return {"y": x.squares_about_mean()[1] / float(x.shape[1])}


@accept("scatter", _variance, "Chan's merge of blocks", logits=X, finite=True)
def variance(n: int) -> Any:
    x = rows(n)
    scatter = _scatter(x, _mean(x, n), n)
    return [x, te.compute((ROWS,), lambda i: scatter[i] / n, name="y")]


def _normal(x: Bounded) -> Bounded:
    mean, scatter = x.squares_about_mean()
    deviation = (scatter / float(x.shape[1]) + EPSILON).rsqrt()
    return (x - expand(mean)) * expand(deviation)


@accept(
    "scatter", lambda x: {"y": _normal(x)}, "the output is a second pass", logits=X, finite=True
)
def layer_norm(n: int) -> Any:
    x = rows(n)
    mean = _mean(x, n)
    scatter = _scatter(x, mean, n)
    y = te.compute(
        (ROWS, n),
        lambda i, k: (x[i, k] - mean[i]) * te.rsqrt(scatter[i] / n + EPSILON),
        name="y",
    )
    return [x, y]


@either(
    "y", lambda x, w: {"y": product_of(_normal(x), w)}, "no difference of large sums is made of it",
    logits=X, finite=True,
)  # fmt: skip
def layer_norm_then_product(n: int) -> Any:
    x, w = rows(n), _matrix(n)
    mean = _mean(x, n)
    scatter = _scatter(x, mean, n)
    a = te.compute(
        (ROWS, n),
        lambda i, k: (x[i, k] - mean[i]) * te.rsqrt(scatter[i] / n + EPSILON),
        name="a",
    )
    return [x, w, _times(a, w, n)]


def _moments(x: Bounded) -> dict[str, Any]:
    return {"sum": x.sum(), "ss": (x * x).sum()}


@either("ss", _moments, "no cascade: nothing is improved unasked", logits=X, finite=True)
def moments_as_written(n: int) -> Any:
    x, k = rows(n), keys(n)
    total = te.compute((ROWS,), lambda i: te.sum(x[i, k], axis=k), name="sum")
    return [x, total, _squares(x, n)]


def _absolute(x: Bounded) -> dict[str, Any]:
    return {"y": (x - expand(x.sum() / float(x.shape[1]))).abs().sum()}


@refuse("y", _absolute, "no finite basis", logits=X, finite=True)
def absolute_deviation(n: int) -> Any:
    x, k = rows(n), keys(n)
    mean = _mean(x, n)
    y = te.compute((ROWS,), lambda i: te.sum(te.abs(x[i, k] - mean[i]), axis=k), name="y")
    return [x, y]


# ---- Stable norms ----------------------------------------------------------------------------


def stable_norm_of(x: Bounded) -> dict[str, Any]:
    m = x.abs().max()
    scaled = x / expand(m)
    return {"y": m * (scaled * scaled).sum().sqrt()}


@accept(
    "s",
    stable_norm_of,
    "defer or roll (m / m')^2; rows of zeros",
    logits=X,
    twin="absolute_deviation",
)
def stable_norm(n: int) -> Any:
    x, k, l = rows(n), keys(n), keys(n, "l")
    m = te.compute((ROWS,), lambda i: te.max(te.abs(x[i, k]), axis=k), name="m")
    s = te.compute((ROWS,), lambda i: te.sum((x[i, l] / m[i]) * (x[i, l] / m[i]), axis=l), name="s")
    return [x, te.compute((ROWS,), lambda i: m[i] * te.sqrt(s[i]), name="y")]


def _cosine(x: Bounded, z: Bounded) -> dict[str, Any]:
    lengths = ((x * x).sum() * (z * z).sum()).rsqrt()
    return {"y": (x * z).sum() * lengths}


@either("xz", _cosine, "three sums of which none reads another", logits={}, finite=True)
def cosine(n: int) -> Any:
    x, z = rows(n), rows(n, "z")

    def dot(a: Any, b: Any, name: str) -> Any:
        k = keys(n)
        return te.compute((ROWS,), lambda i: te.sum(a[i, k] * b[i, k], axis=k), name=name)

    xx, zz, xz = dot(x, x, "xx"), dot(z, z, "zz"), dot(x, z, "xz")
    return [x, z, te.compute((ROWS,), lambda i: xz[i] * te.rsqrt(xx[i] * zz[i]), name="y")]


def _unit(x: Bounded, z: Bounded) -> Bounded:
    return x * expand(((x * x).sum() + EPSILON).rsqrt())


def _unit_dot(x: Bounded, z: Bounded) -> dict[str, Any]:
    return {"y": (_unit(x, z) * z).sum()}


def _dot_of_unit(n: int, dtype: str) -> Any:
    x, z, k = rows(n), rows(n, "z"), keys(n)
    ss = _squares(x, n)
    a = te.compute(
        (ROWS, n),
        lambda i, k: (x[i, k] * te.rsqrt(ss[i] + EPSILON)).astype(dtype),
        name="a",
    )
    y = te.compute((ROWS,), lambda i: te.sum(a[i, k].astype(F) * z[i, k], axis=k), name="y")
    return [x, z, y]


@accept("y", _unit_dot, "the length is deferred", logits=X, finite=True, twin="dot_of_narrow_unit")
def dot_of_unit(n: int) -> Any:
    return _dot_of_unit(n, F)


def _narrow_dot(x: Bounded, z: Bounded) -> dict[str, Any]:
    a = _unit(x, z)
    narrow = Bounded(a.value, a.error + abs(a.value) / 1024 + 1e-7, a.rules)
    return {"y": (narrow * z).sum()}


@refuse("y", _narrow_dot, "rounded to sixteen bits before the product", logits=X, finite=True)
def dot_of_narrow_unit(n: int) -> Any:
    return _dot_of_unit(n, "float16")
