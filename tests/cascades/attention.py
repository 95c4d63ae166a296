"""Attention: softmax of scores, and a product with values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from .bounded import Bounded, expand, where
from .case import COLUMNS, ROWS, Family

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse, either = FAMILY.accept, FAMILY.refuse, FAMILY.either

F = "float32"
#: Query heads, key heads, queries, depth.
HEADS, GROUPS, QUERIES, DEPTH = 4, 2, 3, 5
MASKED = tirx.const(-np.inf, F)
Q = {"q": 3}


def inputs(n: Any, kv: int = HEADS) -> list[Any]:
    return [
        te.placeholder((HEADS, QUERIES, DEPTH), F, name="q"),
        te.placeholder((kv, n, DEPTH), F, name="k"),
        te.placeholder((kv, n, COLUMNS), F, name="v"),
    ]


def scores(q: Any, k: Any, n: Any, group: int = 1) -> Any:
    d = te.reduce_axis((0, DEPTH), "d")
    return te.compute(
        (HEADS, QUERIES, n),
        lambda h, i, j: te.sum(q[h, i, d] * k[h // group, j, d], axis=d),
        name="qk",
    )


def attend(
    z: Any, v: Any, n: Any, *, group: int = 1, row: Callable[[Any], Any] = lambda h: h
) -> list[Any]:
    """Blocks m, e, s, p, o: the row of head h is that of ``row(h)``."""
    j, l, c = (te.reduce_axis((0, n), name) for name in ("j", "l", "c"))
    grid = (HEADS, QUERIES)
    m = te.compute(grid, lambda h, i: te.max(z[h, i, j], axis=j), name="m")
    e = te.compute((*grid, n), lambda h, i, j: te.exp(z[h, i, j] - m[row(h), i]), name="e")
    s = te.compute(grid, lambda h, i: te.sum(e[h, i, l], axis=l), name="s")
    p = te.compute((*grid, n), lambda h, i, j: e[h, i, j] / s[h, i], name="p")
    o = te.compute(
        (*grid, COLUMNS), lambda h, i, x: te.sum(p[h, i, c] * v[h // group, c, x], axis=c), name="o"
    )
    return [m, e, s, p, o]


# ---- Oracles ---------------------------------------------------------------------------------


def scores_of(q: Bounded, k: Bounded, group: int = 1) -> Bounded:
    k = k.moved(lambda a: np.repeat(a, group, 0))
    return (expand(q, 2) * expand(k, 1)).sum()


def values_of(p: Bounded, v: Bounded, group: int = 1) -> Bounded:
    v = v.moved(lambda a: np.repeat(a, group, 0))
    return (expand(p) * expand(v, 1)).sum(2)


def attention_of(z: Bounded, v: Bounded, group: int = 1) -> Bounded:
    e = (z - expand(z.max())).exp()
    return values_of(e / expand(e.sum()), v, group)


def _causal(z: Bounded) -> Bounded:
    keys, queries = np.arange(z.shape[2]), np.arange(z.shape[1])
    return where(keys[None] <= queries[:, None], z, np.float32(-np.inf))


# ---- Programs --------------------------------------------------------------------------------


def _plain(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    return {"o": attention_of(scores_of(q, k), v)}


@accept("o", _plain, "roll exp(m - m'), defer 1/s", logits={"q": 2}, twin="weights_in_float16")
def attention(n: int) -> Any:
    q, k, v = inputs(n)
    return [q, k, v, attend(scores(q, k, n), v, n)[-1]]


def _scaled(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    z = scores_of(q, k) * 0.25
    e = (z - expand(z.max())).exp()
    o = values_of(e, v)
    return {"y": o / expand(e.sum())}


@accept("o", _scaled, "scaled; divided after the product as written", logits={"q": 2})
def attention_divided_at_the_end(n: int) -> Any:
    q, k, v = inputs(n)
    qk = scores(q, k, n)
    z = te.compute((HEADS, QUERIES, n), lambda h, i, j: qk[h, i, j] * 0.25, name="z")
    _, e, s, _, _ = attend(z, v, n)
    c = te.reduce_axis((0, n), "c")
    grid = (HEADS, QUERIES, COLUMNS)
    o = te.compute(grid, lambda h, i, x: te.sum(e[h, i, c] * v[h, c, x], axis=c), name="o")
    return [q, k, v, te.compute(grid, lambda h, i, x: o[h, i, x] / s[h, i], name="y")]


def _half(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    z = scores_of(q, k)
    e = (z - expand(z.max())).exp()
    p = e / expand(e.sum())
    return {"o": values_of(Bounded(p.value, p.error + abs(p.value) / 1024 + 1e-7, p.rules), v)}


@refuse("o", _half, "the weights are rounded to sixteen bits between", logits={"q": 2}, finite=True)
def weights_in_float16(n: int) -> Any:
    q, k, v = inputs(n)
    _, _, _, p, _ = attend(scores(q, k, n), v, n)
    c = te.reduce_axis((0, n), "c")
    half = te.compute(
        (HEADS, QUERIES, n), lambda h, i, j: p[h, i, j].astype("float16"), name="half"
    )
    o = te.compute(
        (HEADS, QUERIES, COLUMNS),
        lambda h, i, x: te.sum(half[h, i, c].astype(F) * v[h, c, x], axis=c),
        name="o",
    )
    return [q, k, v, o]


def _causal_attention(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    return {"o": attention_of(_causal(scores_of(q, k)), v)}


def _causal_scores(q: Any, k: Any, n: Any) -> Any:
    qk = scores(q, k, n)
    return te.compute(
        (HEADS, QUERIES, n), lambda h, i, j: tirx.Select(j <= i, qk[h, i, j], MASKED), name="z"
    )


@accept(
    "o", _causal_attention, "masked to -inf above the diagonal",
    logits={"q": 2}, twin="mask_multiplied_after_exp",
)  # fmt: skip
def causal_attention(n: int) -> Any:
    q, k, v = inputs(n)
    return [q, k, v, attend(_causal_scores(q, k, n), v, n)[-1]]


def _multiplied(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    z = scores_of(q, k)
    mask = np.arange(z.shape[2])[None] <= np.arange(z.shape[1])[:, None]
    e = (z - expand(_causal(z).max())).exp() * np.broadcast_to(mask, z.shape).astype(F)
    return {"o": values_of(e, v)}


@refuse(
    "o", _multiplied, "the maximum is of other scores: exp may overflow at a partial one",
    logits={"q": 2}, finite=True,
)  # fmt: skip
def mask_multiplied_after_exp(n: int) -> Any:
    q, k, v = inputs(n)
    grid, qk = (HEADS, QUERIES), scores(q, k, n)
    j, c = (te.reduce_axis((0, n), name) for name in ("j", "c"))
    m = te.compute(
        grid,
        lambda h, i: te.max(tirx.Select(j <= i, qk[h, i, j], MASKED), axis=j),
        name="m",
    )
    e = te.compute(
        (*grid, n),
        lambda h, i, j: te.exp(qk[h, i, j] - m[h, i]) * (j <= i).astype(F),
        name="e",
    )
    o = te.compute(
        (*grid, COLUMNS), lambda h, i, x: te.sum(e[h, i, c] * v[h, c, x], axis=c), name="o"
    )
    return [q, k, v, o]


def _biased(q: Bounded, k: Bounded, v: Bounded, bias: Bounded) -> dict[str, Any]:
    return {"o": attention_of(scores_of(q, k) + bias, v)}


def _bias(n: Any) -> Any:
    return te.placeholder((QUERIES, n), F, name="bias")


@accept(
    "o", _biased, "an additive bias, -inf in blocks of it", logits={"bias": 1},
    twin="bias_times_the_maximum",
)  # fmt: skip
def attention_with_bias(n: int) -> Any:
    (q, k, v), bias = inputs(n), _bias(n)
    qk = scores(q, k, n)
    z = te.compute((HEADS, QUERIES, n), lambda h, i, j: qk[h, i, j] + bias[i, j], name="z")
    return [q, k, v, bias, attend(z, v, n)[-1]]


def _slopes(q: Bounded, k: Bounded, v: Bounded, slope: Bounded) -> dict[str, Any]:
    z = scores_of(q, k)
    far = np.arange(z.shape[2], dtype=F)[None] - np.arange(z.shape[1], dtype=F)[:, None]
    steps = slope.moved(lambda a: a[:, None, None])
    return {"o": attention_of(z + steps * far, v)}


@accept("o", _slopes, "a slope of each head times the distance", logits={"q": 2})
def attention_with_slopes(n: int) -> Any:
    (q, k, v), slope = inputs(n), te.placeholder((HEADS,), F, name="slope")
    qk = scores(q, k, n)
    z = te.compute(
        (HEADS, QUERIES, n),
        lambda h, i, j: qk[h, i, j] + slope[h] * (j - i).astype(F),
        name="z",
    )
    return [q, k, v, slope, attend(z, v, n)[-1]]


def _times_maximum(q: Bounded, k: Bounded, v: Bounded, bias: Bounded) -> dict[str, Any]:
    z = scores_of(q, k)
    m = expand(z.max())
    e = (z + bias * m - m).exp()
    return {"o": values_of(e, v)}


@refuse("o", _times_maximum, "the bias reads the maximum", logits={"q": 2}, finite=True)
def bias_times_the_maximum(n: int) -> Any:
    (q, k, v), bias = inputs(n), _bias(n)
    grid, z = (HEADS, QUERIES), scores(q, k, n)
    j, c = (te.reduce_axis((0, n), name) for name in ("j", "c"))
    m = te.compute(grid, lambda h, i: te.max(z[h, i, j], axis=j), name="m")
    e = te.compute(
        (*grid, n),
        lambda h, i, j: te.exp(z[h, i, j] + bias[i, j] * m[h, i] - m[h, i]),
        name="e",
    )
    o = te.compute(
        (*grid, COLUMNS), lambda h, i, x: te.sum(e[h, i, c] * v[h, c, x], axis=c), name="o"
    )
    return [q, k, v, bias, o]


def _grouped(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    group = HEADS // GROUPS
    return {"o": attention_of(scores_of(q, k, group), v, group)}


@accept(
    "o", _grouped, "several heads of queries share one of keys", logits={"q": 2},
    twin="row_of_the_key_head",
)  # fmt: skip
def grouped_attention(n: int) -> Any:
    q, k, v = inputs(n, GROUPS)
    group = HEADS // GROUPS
    return [q, k, v, attend(scores(q, k, n, group), v, n, group=group)[-1]]


def _key_head(q: Bounded, k: Bounded, v: Bounded) -> dict[str, Any]:
    group = HEADS // GROUPS
    z = scores_of(q, k, group)
    m = z.max().moved(lambda a: a[np.arange(HEADS) // group])
    e = (z - expand(m)).exp()
    return {"o": values_of(e / expand(e.sum()), v, group)}


@refuse("o", _key_head, "the maximum is of the head of keys", logits={"q": 2}, finite=True)
def row_of_the_key_head(n: int) -> Any:
    q, k, v = inputs(n, GROUPS)
    group = HEADS // GROUPS
    blocks = attend(scores(q, k, n, group), v, n, group=group, row=lambda h: h // group)
    return [q, k, v, blocks[-1]]


# ---- A sliding window ------------------------------------------------------------------------

WINDOW = 4


def _windows(x: Bounded) -> Bounded:
    places = np.arange(x.shape[0] - WINDOW + 1)[:, None] + np.arange(WINDOW)
    return x.moved(lambda a: a[places])


def _window(x: Bounded, v: Bounded) -> dict[str, Any]:
    z = _windows(x)
    e = (z - expand(z.max())).exp()
    return {"o": (e * _windows(v)).sum()}


def _sliding(n: int, width: int) -> Any:
    x, v = (te.placeholder((n + WINDOW,), F, name=name) for name in ("x", "v"))
    w, u = te.reduce_axis((0, WINDOW), "w"), te.reduce_axis((0, width), "u")
    m = te.compute((n + 1,), lambda i: te.max(x[i + w], axis=w), name="m")
    o = te.compute((n + 1,), lambda i: te.sum(te.exp(x[i + u] - m[i]) * v[i + u], axis=u), name="o")
    return [x, v, o]


@accept("o", _window, "each row has keys of its own", logits={"x": 0}, twin="windows_that_differ")
def sliding_window(n: int) -> Any:
    return _sliding(n, WINDOW)


def _shorter_window(x: Bounded, v: Bounded) -> dict[str, Any]:
    z = _windows(x)
    e = (z - expand(z.max())).exp()
    return {"o": (e * _windows(v))[:, :-1].sum()}


@refuse("o", _shorter_window, "the sum has fewer keys than the maximum", logits={"x": 0})
def windows_that_differ(n: int) -> Any:
    return _sliding(n, WINDOW - 1)


assert ROWS == HEADS
