"""Softmax and its relatives: a maximum, a sum of exponentials, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.script import tirx as T

from .bounded import Bounded, expand, where
from .case import ROWS, Family

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse, either = FAMILY.accept, FAMILY.refuse, FAMILY.either

F = "float32"
X = {"x": 1}
#: Keys of a sum that is no part of the cascade.
WIDTH = 7


def rows(n: Any, name: str = "x", dtype: str = F) -> Any:
    return te.placeholder((ROWS, n), dtype, name=name)


def keys(n: Any, name: str = "k") -> Any:
    return te.reduce_axis((0, n), name)


def row_max(x: Any, n: Any, name: str = "m") -> Any:
    k = keys(n)
    return te.compute((ROWS,), lambda i: te.max(x[i, k], axis=k), name=name)


def exps(x: Any, m: Any, n: Any, name: str = "e") -> Any:
    return te.compute((ROWS, n), lambda i, k: te.exp(x[i, k] - m[i]), name=name)


def row_sum(e: Any, n: Any, name: str = "s") -> Any:
    k = keys(n)
    return te.compute((ROWS,), lambda i: te.sum(e[i, k], axis=k), name=name)


def from_infinity() -> Any:
    """A maximum that starts from -inf."""
    return te.comm_reducer(lambda a, b: te.max(a, b), lambda t: tirx.const(-np.inf, t))


# ---- Oracles ---------------------------------------------------------------------------------


def softmax_of(x: Bounded, axis: int = -1) -> Bounded:
    e = (x - expand(x.max(axis), axis)).exp()
    return e / expand(e.sum(axis), axis)


def logsumexp_of(x: Bounded) -> Bounded:
    m = x.max()
    return (x - expand(m)).exp().sum().log() + m


# ---- Programs --------------------------------------------------------------------------------


@accept("s", lambda x: {"y": softmax_of(x)}, "roll by exp(m - m')", logits=X, twin="shifted_row")
def softmax(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = exps(x, m, n)
    s = row_sum(e, n)
    return [x, te.compute((ROWS, n), lambda i, k: e[i, k] / s[i], name="y")]


def _shifted(x: Bounded) -> dict[str, Any]:
    m = x.max().moved(lambda a: a[[0, 0, 1, 2]])
    return {"s": (x - expand(m)).exp().sum()}


@refuse("s", _shifted, "the maximum is read at another row", logits=X)
def shifted_row(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = te.compute((ROWS, n), lambda i, k: te.exp(x[i, k] - m[te.max(i - 1, 0)]), name="e")
    return [x, row_sum(e, n)]


def _log_sum(sums: Any, m: Any) -> Any:
    return te.compute((ROWS,), lambda i: te.log(sums[i]) + m[i], name="y")


@accept("s", lambda x: {"y": logsumexp_of(x)}, "roll; log is a tail", logits=X, twin="min_shift")
def logsumexp(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    return [x, _log_sum(row_sum(exps(x, m, n), n), m)]


@accept("e", lambda x: {"y": logsumexp_of(x)}, "the same, called with the exponentials", logits=X)
def logsumexp_by_its_terms(n: int) -> Any:
    return logsumexp(n)


@accept("m", lambda x: {"y": logsumexp_of(x)}, "the same, called with the maximum", logits=X)
def logsumexp_by_its_head(n: int) -> Any:
    return logsumexp(n)


def _scaled_by_row(x: Bounded, w: Bounded) -> dict[str, Any]:
    z = x * expand((w * w).sum())
    return {"s": (z - expand(z.max())).exp().sum()}


@accept("s", _scaled_by_row, "a sum over other keys, read by rows, is an input", logits=X)
def scaled_by_a_result_of_its_row(n: int) -> Any:
    x, w, d = rows(n), te.placeholder((ROWS, WIDTH), F, name="w"), te.reduce_axis((0, WIDTH), "d")
    scale = te.compute((ROWS,), lambda i: te.sum(w[i, d] * w[i, d], axis=d), name="scale")
    z = te.compute((ROWS, n), lambda i, k: x[i, k] * scale[i], name="z")
    return [x, w, row_sum(exps(z, row_max(z, n), n), n)]


def _min_shift(x: Bounded) -> dict[str, Any]:
    return {"s": (x - expand(x.min())).exp().sum()}


@refuse("s", _min_shift, "exp(m - m') grows as a minimum falls", logits=X)
def min_shift(n: int) -> Any:
    x, k = rows(n), keys(n)
    m = te.compute((ROWS,), lambda i: te.min(x[i, k], axis=k), name="m")
    return [x, row_sum(exps(x, m, n), n)]


def _times_the_maximum(x: Bounded, v: Bounded) -> dict[str, Any]:
    m = expand(x.max())
    t = (x - m).exp() * m
    return {"o": (t / expand(t.sum()) * v).sum()}


@accept(
    "o",
    _times_the_maximum,
    "two factors of the row, of which one alone may overflow: m / s is combined first",
    logits=X,
)
def times_the_maximum(n: int) -> Any:
    x, v, c = rows(n), te.placeholder((ROWS, n), F, name="v"), keys(n)
    m = row_max(x, n)
    t = te.compute((ROWS, n), lambda i, k: te.exp(x[i, k] - m[i]) * m[i], name="t")
    s = row_sum(t, n)
    o = te.compute((ROWS,), lambda i: te.sum(t[i, c] / s[i] * v[i, c], axis=c), name="o")
    return [x, v, o]


def _log_softmax(x: Bounded) -> dict[str, Any]:
    m = x.max()
    return {"y": x - expand(m) - expand((x - expand(m)).exp().sum().log())}


@accept("s", _log_softmax, "roll; the output is a second pass", logits=X)
def log_softmax(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    s = row_sum(exps(x, m, n), n)
    return [
        x,
        te.compute((ROWS, n), lambda i, k: x[i, k] - m[i] - te.log(s[i]), name="y"),
    ]


@accept("s", lambda x: {"y": softmax_of(x, 0)}, "keys on the outer axis", logits={"x": 0})
def softmax_of_columns(n: int) -> Any:
    x = te.placeholder((n, ROWS), F, name="x")
    k = keys(n)
    m = te.compute((ROWS,), lambda i: te.max(x[k, i], axis=k), name="m")
    e = te.compute((n, ROWS), lambda k, i: te.exp(x[k, i] - m[i]), name="e")
    s = te.compute((ROWS,), lambda i: te.sum(e[k, i], axis=k), name="s")
    return [x, te.compute((n, ROWS), lambda k, i: e[k, i] / s[i], name="y")]


def _softmax_transposed(x: Bounded) -> dict[str, Any]:
    e = (x - expand(x.max(1), 1)).exp()
    return {"y": (e / expand(e.sum(1), 1)).moved(lambda a: a.transpose(2, 0, 1))}


@accept("s", _softmax_transposed, "rows of two axes, kept transposed", logits={"x": 1})
def softmax_with_rows_transposed(n: int) -> Any:
    x = te.placeholder((2, n, 3), F, name="x")
    k = keys(n)
    m = te.compute((3, 2), lambda j, i: te.max(x[i, k, j], axis=k), name="m")
    e = te.compute((n, 3, 2), lambda k, j, i: te.exp(x[i, k, j] - m[j, i]), name="e")
    s = te.compute((2, 3), lambda i, j: te.sum(e[k, j, i], axis=k), name="s")
    return [x, te.compute((3, 2, n), lambda j, i, k: e[k, j, i] / s[i, j], name="y")]


def _all_but_the_last(x: Bounded) -> dict[str, Any]:
    e = (x - expand(x.max())).exp()
    return {"s": e[:, :-1].sum()}


@refuse("s", _all_but_the_last, "the sum leaves out a key that the maximum has", logits=X)
def sum_without_the_last_key(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = exps(x, m, n)
    k = keys(n - 1)
    return [x, te.compute((ROWS,), lambda i: te.sum(e[i, k], axis=k), name="s")]


def _masked(x: Bounded, mask: np.ndarray) -> dict[str, Any]:
    return {"y": softmax_of(where(mask != 0, x, np.float32(-np.inf)))}


MASK = {"mask": (0, 1)}


@accept(
    "s", _masked, "masked to -inf; the maximum starts from a finite number", logits=X, ranges=MASK
)
def softmax_masked(n: int) -> Any:
    x, mask = rows(n), rows(n, "mask", "int8")
    z = te.compute(
        (ROWS, n),
        lambda i, k: te.if_then_else(mask[i, k] != 0, x[i, k], tirx.const(-np.inf, F)),
        name="z",
    )
    m = row_max(z, n)
    e = exps(z, m, n)
    s = row_sum(e, n)
    return [x, mask, te.compute((ROWS, n), lambda i, k: e[i, k] / s[i], name="y")]


def _masked_sum(x: Bounded, mask: np.ndarray) -> dict[str, Any]:
    z = where(mask != 0, x, np.float32(-np.inf))
    return {"s": (z - expand(z.max())).exp().sum()}


@refuse(
    "s", _masked_sum, "the start is -inf, and the term a call of which nothing is known",
    logits=X, ranges=MASK, finite=True,
)  # fmt: skip
def opaque_call_from_infinity(n: int) -> Any:
    x, mask, k = rows(n), rows(n, "mask", "int8"), keys(n)
    z = te.compute(
        (ROWS, n),
        lambda i, k: te.if_then_else(mask[i, k] != 0, x[i, k], tirx.const(-np.inf, F)),
        name="z",
    )
    highest = from_infinity()
    m = te.compute((ROWS,), lambda i: highest(z[i, k], axis=k), name="m")
    e = te.compute((ROWS, n), lambda i, k: T.call_pure_extern(F, "expf", z[i, k] - m[i]), name="e")
    return [x, mask, row_sum(e, n)]


def _cross_entropy(x: Bounded, target: np.ndarray) -> dict[str, Any]:
    chosen = x.moved(lambda a: a[np.arange(len(target)), target])
    return {"y": logsumexp_of(x) - chosen}


@accept(
    "s", _cross_entropy, "the chosen logit is read by the tail", logits=X, ranges={"target": (0, 0)}
)
def cross_entropy(n: int) -> Any:
    x, target = rows(n), te.placeholder((ROWS,), "int32", name="target")
    m = row_max(x, n)
    s = row_sum(exps(x, m, n), n)
    y = te.compute((ROWS,), lambda i: te.log(s[i]) + m[i] - x[i, target[i]], name="y")
    return [x, target, y]


def _terms_kept(x: Bounded) -> dict[str, Any]:
    e = (x - expand(x.max())).exp()
    return {"e": e, "y": e.sum().log()}


@accept("s", _terms_kept, "the terms are an output: a second pass", logits=X)
def terms_are_an_output(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = exps(x, m, n)
    s = row_sum(e, n)
    return [x, e, te.compute((ROWS,), lambda i: te.log(s[i]), name="y")]


def _head_kept(x: Bounded) -> dict[str, Any]:
    m = x.max()
    return {"m": m, "s": (x - expand(m)).exp().sum()}


@accept("s", _head_kept, "the maximum is an output", logits=X, twin="scan")
def head_is_an_output(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    return [x, m, row_sum(exps(x, m, n), n)]


def _scan(x: Bounded) -> dict[str, Any]:
    m = x.value[:, 0]
    for k in range(x.shape[1]):
        m = np.maximum(m, (x.value[:, k] - m).astype(np.float32))
    return {"s": (x - expand(Bounded(m, np.abs(m) * 1e-6, x.rules))).exp().sum()}


@refuse("s", _scan, "the term of the maximum reads the maximum so far", logits=X, finite=True)
def scan(n: int) -> Any:
    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((ROWS, n), F), s: T.Buffer((ROWS,), F)):  # type: ignore[no-untyped-def]
        m = T.sblock_alloc_buffer((ROWS,), F)
        e = T.sblock_alloc_buffer((ROWS, n), F)
        for i, k in T.grid(ROWS, n):
            with T.sblock("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    m[vi] = x[vi, 0]
                m[vi] = T.max(m[vi], x[vi, vk] - m[vi])
        for i, k in T.grid(ROWS, n):
            with T.sblock("e"):
                vi, vk = T.axis.remap("SS", [i, k])
                e[vi, vk] = T.exp(x[vi, vk] - m[vi])
        for i, k in T.grid(ROWS, n):
            with T.sblock("s"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    s[vi] = T.float32(0)
                s[vi] = s[vi] + e[vi, vk]

    return func


def _soft_cap(x: Bounded) -> dict[str, Any]:
    z = (x * 0.125).tanh() * 8.0
    return {"s": (z - expand(z.max())).exp().sum()}


@accept("s", _soft_cap, "capped before the maximum", logits=X, twin="soft_cap_after_the_maximum")
def soft_cap(n: int) -> Any:
    x = rows(n)
    z = te.compute((ROWS, n), lambda i, k: te.tanh(x[i, k] * 0.125) * 8.0, name="z")
    m = row_max(z, n)
    return [x, row_sum(exps(z, m, n), n)]


def _soft_cap_after(x: Bounded) -> dict[str, Any]:
    return {"s": ((x * 0.125).tanh() * 8.0 - expand(x.max())).exp().sum()}


@refuse("s", _soft_cap_after, "the exponent is not below the maximum", logits=X)
def soft_cap_after_the_maximum(n: int) -> Any:
    x = rows(n)
    z = te.compute((ROWS, n), lambda i, k: te.tanh(x[i, k] * 0.125) * 8.0, name="z")
    m = row_max(x, n)
    return [x, row_sum(exps(z, m, n), n)]


def _threshold(x: Bounded) -> dict[str, Any]:
    m = expand(x.max())
    e = where(x.value > (m - 5.0).value, (x - m).exp(), 0.0)
    return {"s": e.sum()}


@refuse("s", _threshold, "which terms count depends on the maximum", logits=X, nan=False)
def terms_near_the_maximum(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = te.compute(
        (ROWS, n),
        lambda i, k: tirx.Select(x[i, k] > m[i] - 5.0, te.exp(x[i, k] - m[i]), tirx.const(0.0, F)),
        name="e",
    )
    return [x, row_sum(e, n)]


def _split(peak: Bounded, total: Bounded, part: Bounded) -> dict[str, Any]:
    w = (peak - expand(peak.max())).exp()
    o = (part * expand(w)).sum(1)
    return {"y": o / expand((w * total).sum())}


@accept("o", _split, "partial results of attention merged", logits={"peak": 1}, finite=True)
def merge_of_parts(n: int) -> Any:
    peak, total = rows(n, "peak"), rows(n, "total")
    part = te.placeholder((ROWS, n, 3), F, name="part")
    m = row_max(peak, n)
    w = exps(peak, m, n, "w")
    k = keys(n)
    s = te.compute((ROWS,), lambda i: te.sum(w[i, k] * total[i, k], axis=k), name="s")
    o = te.compute((ROWS, 3), lambda i, j: te.sum(part[i, k, j] * w[i, k], axis=k), name="o")
    return [peak, total, part, te.compute((ROWS, 3), lambda i, j: o[i, j] / s[i], name="y")]


@accept(
    "s", lambda x, others: {"y": logsumexp_of(x)}, "symbolic extents",
    logits=X, sizes={"n": lambda n: n - 1}, twin="",
)  # fmt: skip
def symbolic_keys(n: int) -> Any:
    # At least one key, whatever n is, which the other parameter tells.
    size = te.var("n")
    others = te.placeholder((size,), F, name="others")
    x = rows(size + 1)
    m = row_max(x, size + 1)
    return [x, others, _log_sum(row_sum(exps(x, m, size + 1), size + 1), m)]


@either("s", lambda x: {"y": logsumexp_of(x)}, "n may be 0", logits=X, sizes={"n": lambda n: n})
def perhaps_no_keys(n: int) -> Any:
    size = te.var("n")
    x = rows(size)
    m = row_max(x, size)
    return [x, _log_sum(row_sum(exps(x, m, size), size), m)]


def _narrow(x: Bounded) -> dict[str, Any]:
    e = (x - expand(x.max())).exp()
    half = Bounded(e.value.astype(np.float16), e.error + abs(e.value) / 1024 + 1e-7, e.rules)
    return {"s": half.sum()}


@refuse("s", _narrow, "the terms are rounded to sixteen bits between", logits=X)
def terms_in_float16(n: int) -> Any:
    x = rows(n)
    m = row_max(x, n)
    e = te.compute(
        (ROWS, n), lambda i, k: te.exp(x[i, k] - m[i]).astype("float16").astype(F), name="e"
    )
    return [x, row_sum(e, n)]


def _double(x: Bounded) -> dict[str, Any]:
    return {"s": (x - expand(x.max())).exp().sum()}


@accept("s", _double, "in float64", logits=X)
def in_float64(n: int) -> Any:
    x = rows(n, dtype="float64")
    m = row_max(x, n)
    return [x, row_sum(exps(x, m, n), n)]


@refuse("s", _double, "the sum is of sixteen bits", logits=X, finite=True)
def in_float16(n: int) -> Any:
    x = rows(n, dtype="float16")
    m = row_max(x, n)
    return [x, row_sum(exps(x, m, n), n)]
