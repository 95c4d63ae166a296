"""Selection: what is read or counted where a row has its largest element."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from .bounded import Bounded, expand
from .case import ROWS, Family
from .softmax import F, X, keys, row_max, rows

FAMILY = Family()
CASES = FAMILY.cases
accept, refuse, either = FAMILY.accept, FAMILY.refuse, FAMILY.either

LOWEST = tirx.min_value(F)


def _argmax() -> Any:
    """The index and the value of the first largest element."""

    def combine(a: Any, b: Any) -> Any:
        first = tirx.Or(a[1] > b[1], tirx.And(a[1].equal(b[1]), a[0] < b[0]))
        return tirx.Select(first, a[0], b[0]), tirx.Select(a[1] > b[1], a[1], b[1])

    return te.comm_reducer(
        combine, lambda index, value: (tirx.const(-1, index), tirx.min_value(value)), name="argmax"
    )


def _index_of(x: Bounded) -> np.ndarray:
    return x.value.argmax(1)


def _gathered(x: Bounded, v: Bounded) -> dict[str, Any]:
    return {"s": v.value.astype(F)[np.arange(ROWS), _index_of(x)]}


def _gather(n: int) -> Any:
    x, v, k, l = rows(n), rows(n, "v"), keys(n), keys(n, "l")
    largest = _argmax()
    index, value = te.compute((ROWS,), lambda i: largest((k, x[i, k]), axis=k), name="best")
    zero = tirx.const(0.0, F)
    s = te.compute(
        (ROWS,), lambda i: te.sum(tirx.Select(index[i].equal(l), v[i, l], zero), axis=l), name="s"
    )
    return [x, v, index, value, s]


def _gathered_all(x: Bounded, v: Bounded) -> dict[str, Any]:
    index = _index_of(x)
    return {
        **_gathered(x, v),
        "best.v0": index.astype("int32"),
        "best.v1": x.value.astype(F)[np.arange(ROWS), index],
    }


@accept("s", _gathered_all, "selection: the payload of the largest", twin="gather_by_threads")
def gather_at_the_largest(n: int) -> Any:
    return _gather(n)


def _bind(sch: Any) -> None:
    for name in ("best", "s"):
        loops = sch.get_loops(sch.get_sblock(name))
        sch.bind(loops[-1], "threadIdx.x")


@refuse("s", _gathered_all, "the keys run in threads", schedule=_bind)
def gather_by_threads(n: int) -> Any:
    return _gather(n)


def _gate(x: Bounded) -> dict[str, Any]:
    s = (x - expand(x.max())).exp().sum()
    best = {name: part for name, part in _gathered_all(x, x).items() if name != "s"}
    return {**best, "y": 1.0 / s}


@accept("s", _gate, "the gate of the first choice is 1 / s", twin="second_largest")
def gate_of_the_largest(n: int) -> Any:
    x, k, l = rows(n), keys(n), keys(n, "l")
    largest = _argmax()
    index, value = te.compute((ROWS,), lambda i: largest((k, x[i, k]), axis=k), name="best")
    s = te.compute((ROWS,), lambda i: te.sum(te.exp(x[i, l] - value[i]), axis=l), name="s")
    return [x, index, value, te.compute((ROWS,), lambda i: 1.0 / s[i], name="y")]


def _second(x: Bounded) -> dict[str, Any]:
    numbers = x.value.copy()
    numbers[numbers == numbers.max(1, keepdims=True)] = np.finfo(F).min
    return {"s": np.maximum(numbers.max(1), np.finfo(F).min).astype(F)}


@refuse("s", _second, "which terms count depends on the maximum")
def second_largest(n: int) -> Any:
    x, k = rows(n), keys(n)
    m = row_max(x, n)
    s = te.compute(
        (ROWS,),
        lambda i: te.max(tirx.Select(x[i, k].equal(m[i]), LOWEST, x[i, k]), axis=k),
        name="s",
    )
    return [x, s]


def largest_of(x: np.ndarray) -> np.ndarray:
    """The maximum of each row as a program takes it: what follows a NaN replaces it."""
    m = np.full(x.shape[0], _lowest(x))
    for k in range(x.shape[1]):
        m = np.where(m > x[:, k], m, x[:, k])
    return m


def _lowest(x: np.ndarray) -> Any:
    return np.finfo(x.dtype).min if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _array(x: Any) -> np.ndarray:
    return x.value.astype(x.rules.dtype) if isinstance(x, Bounded) else x


def _count_largest(x: Any) -> dict[str, Any]:
    x = _array(x)
    return {"s": (x == largest_of(x)[:, None]).sum(1).astype("int32")}


def _count(n: int, dtype: str) -> Any:
    x, k = rows(n, dtype=dtype), keys(n)
    m = row_max(x, n)
    s = te.compute((ROWS,), lambda i: te.sum(x[i, k].equal(m[i]).astype("int32"), axis=k), name="s")
    return [x, s]


@accept("s", _count_largest, "a smaller maximum has no equal left", logits=X, nan=False)
def count_of_the_largest(n: int) -> Any:
    return _count(n, F)


@accept(
    "s", _count_largest, "the same of integers, exactly",
    numerics="exact", ranges={"x": (0, 3)}, twin="count_of_half_the_largest",
)  # fmt: skip
def count_of_the_largest_integer(n: int) -> Any:
    return _count(n, "int32")


@either(
    "s", _count_largest, "after a NaN the maximum falls, and has equals before it",
    logits=X, numerics="exact",
)  # fmt: skip
def count_of_the_largest_exactly(n: int) -> Any:
    return _count(n, F)


def _count_at_least(n: int, dtype: str) -> Any:
    x, k = rows(n, dtype=dtype), keys(n)
    m = row_max(x, n)
    s = te.compute((ROWS,), lambda i: te.sum((x[i, k] >= m[i]).astype("int32"), axis=k), name="s")
    return [x, s]


@accept(
    "s", _count_largest, "none is above the maximum so far", logits=X, finite=True, nan=False,
    twin="count_of_half_the_largest",
)  # fmt: skip
def count_of_what_reaches_the_largest(n: int) -> Any:
    return _count_at_least(n, F)


@accept("s", _count_largest, "the same of integers", numerics="exact", ranges={"x": (-3, 3)})
def count_of_what_reaches_the_largest_integer(n: int) -> Any:
    return _count_at_least(n, "int32")


def _count_half(x: Bounded) -> dict[str, Any]:
    numbers = _array(x)
    half = largest_of(numbers)[:, None] * np.float32(0.5)
    return {"s": (numbers >= half).sum(1).astype("int32")}


@refuse("s", _count_half, "which terms count depends on the maximum", logits=X, finite=True)
def count_of_half_the_largest(n: int) -> Any:
    x, k = rows(n), keys(n)
    m = row_max(x, n)
    s = te.compute(
        (ROWS,), lambda i: te.sum((x[i, k] >= m[i] * 0.5).astype("int32"), axis=k), name="s"
    )
    return [x, s]


def _capped(x: Any, z: Any) -> np.ndarray:
    m, z = largest_of(_array(x))[:, None], _array(z)
    return np.where(z < m, z, m)


def _largest_capped(x: Any, z: Any) -> dict[str, Any]:
    return {"s": largest_of(_capped(x, z))}


def _min_of(n: int, reducer: Any, dtype: str = F) -> Any:
    x, z, k = rows(n, dtype=dtype), rows(n, "z", dtype), keys(n)
    m = row_max(x, n)
    s = te.compute((ROWS,), lambda i: reducer(te.min(z[i, k], m[i]), axis=k), name="s")
    return [x, z, s]


XZ = {"x": 1, "z": 1}


@accept("s", _largest_capped, "min distributes over max", logits=XZ, nan=False)
def largest_of_capped(n: int) -> Any:
    return _min_of(n, te.max)


@accept(
    "s", _largest_capped, "the same of integers, exactly", numerics="exact", twin="sum_of_capped"
)
def largest_of_capped_integers(n: int) -> Any:
    return _min_of(n, te.max, "int32")


@either("s", _largest_capped, "not where there is NaN", logits=XZ, numerics="exact")
def largest_of_capped_exactly(n: int) -> Any:
    return _min_of(n, te.max)


def _sum_capped(x: Bounded, z: Bounded) -> dict[str, Any]:
    return {"s": Bounded(_capped(x, z), 0, x.rules).sum()}


@refuse("s", _sum_capped, "min does not distribute over +", logits=XZ, nan=False)
def sum_of_capped(n: int) -> Any:
    return _min_of(n, te.sum)
