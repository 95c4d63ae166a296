"""Masks made of places: keys that are hidden from a whole block of queries are not computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import fuse_epilogue
from fuse_epilogue.kernels.cpu.attention.key_ranges import key_range
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.tir.walk import substitute
from fuse_epilogue.transform import ScheduleModule
from test_models_attention import by_tvm
from tiers import crossed

op = relax.op
HEADS, SIZE = 2, 8
#: Keys of the windows.
WINDOW = 70

Condition = Callable[[Any, Any], Any]
#: By name: the shown keys, from places that add and compare as numbers do.
MASKS: dict[str, list[Condition]] = {
    "causal": [lambda i, j: j <= i],
    "after a cache": [lambda i, j: j <= i + 100],
    "window": [lambda i, j: j <= i, lambda i, j: i - j < WINDOW],
    "window after a cache": [lambda i, j: j <= i + 100, lambda i, j: i + 100 - j < WINDOW],
    "window on both sides": [lambda i, j: i - j < WINDOW, lambda i, j: j - i < WINDOW],
    "not before": [lambda i, j: j >= i],
}


class _Places:
    """Places as operators of Relax."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _of(self, operator: Any, other: Any) -> _Places:
        value = other.value if isinstance(other, _Places) else relax.const(other, "int64")
        return _Places(operator(self.value, value))

    def __add__(self, other: Any) -> _Places:
        return self._of(op.add, other)

    def __sub__(self, other: Any) -> _Places:
        return self._of(op.subtract, other)

    def __lt__(self, other: Any) -> _Places:
        return self._of(op.less, other)

    def __le__(self, other: Any) -> _Places:
        return self._of(op.less_equal, other)

    def __ge__(self, other: Any) -> _Places:
        return self._of(op.greater_equal, other)


def model(mask: str, queries: Any, keys: Any) -> tvm.IRModule:
    """Attention under a mask, of lengths that are numbers or names."""
    names: dict[str, Any] = {}
    n, m = (
        names.setdefault(each, tirx.Var(each, "int64")) if isinstance(each, str) else each
        for each in (queries, keys)
    )
    shapes = {name: (1, HEADS, n if name == "q" else m, SIZE) for name in "qkv"}
    args = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", args):
        with builder.dataflow():
            q, k, v = args
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = emit(op.multiply(s, relax.const(0.25)))
            i = _Places(emit(op.expand_dims(emit(op.arange(0, n, 1, "int64")), 1)))
            j = _Places(emit(op.expand_dims(emit(op.arange(0, m, 1, "int64")), 0)))
            conditions = [emit(condition(i, j).value) for condition in MASKS[mask]]
            if mask == "window after a cache":
                # As torch writes `&` and `~`; the others are masks on top of each other.
                hidden = [emit(op.bitwise_not(each)) for each in conditions]
                conditions = [emit(op.bitwise_not(emit(op.bitwise_or(*hidden))))]
            for shown in conditions:
                s = emit(op.where(shown, s, relax.const(-np.inf, "float32")))
            out = builder.emit_output(op.matmul(emit(op.nn.softmax(s, axis=-1)), v))
        builder.emit_func_output(out)
    return builder.get()


def drawn(queries: int, keys: int) -> list[np.ndarray]:
    rng = np.random.default_rng(queries * keys)
    shapes = [(1, HEADS, count, SIZE) for count in (queries, keys, keys)]
    return [(rng.standard_normal(shape) * 2).astype("float32") for shape in shapes]


def expected(mask: str, arrays: list[np.ndarray]) -> np.ndarray:
    q, k, v = (each.astype("float64") for each in arrays)
    i, j = np.ogrid[: q.shape[2], : k.shape[2]]
    shown = np.all([condition(i, j) for condition in MASKS[mask]], 0)
    s = np.where(shown, q @ k.transpose(0, 1, 3, 2) * 0.25, -np.inf)
    # TVM's maximum starts from the lowest number: a row without a key is 0 / 0.
    e = np.exp(s - s.max(-1, keepdims=True, initial=np.finfo("float32").min))
    with np.errstate(invalid="ignore"):
        return np.asarray(e / e.sum(-1, keepdims=True) @ v)


@cache
def compiled(mask: str, queries: Any, keys: Any, threads: int = 1) -> Any:
    made = fuse_epilogue.compile(model(mask, queries, keys), threads=threads)
    assert [each.kind for each in made.report.functions] == ["attention"]
    return made


# Some key is shown under each of the masks: what is constant is folded.
SIZES = [(1, 105), (3, 300), (33, 133), (130, 70), (300, 300)]


@pytest.mark.usefixtures("free_threads")
@crossed(mask=list(MASKS), sizes=SIZES, threads=(1, 2))
def test_masks_of_places(mask: str, sizes: tuple[int, int], threads: int) -> None:
    arrays = drawn(*sizes)
    result = compiled(mask, *sizes, threads)(*arrays)
    np.testing.assert_allclose(result, expected(mask, arrays), rtol=0, atol=5e-6)


@crossed(mask=list(MASKS), sizes=[*SIZES, (1, 1), (129, 65), (64, 64)])
def test_masks_of_places_of_any_length(mask: str, sizes: tuple[int, int]) -> None:
    arrays = drawn(*sizes)
    result = compiled(mask, "n", "m")(*arrays)
    np.testing.assert_allclose(result, expected(mask, arrays), rtol=0, atol=5e-6)


def kernel_of(mod: tvm.IRModule) -> str:
    done = scheduled(mod, ScheduleModule(host(1), threads=1))
    (func,) = [each for each in done.functions.values() if isinstance(each, tirx.PrimFunc)]
    return str(func)


@pytest.mark.parametrize("lengths", [(300, 300), ("n", "n")])
@pytest.mark.parametrize("mask", MASKS)
def test_blocks_are_skipped(mask: str, lengths: tuple[Any, Any]) -> None:
    assert "needed" in kernel_of(model(mask, *lengths))


@pytest.mark.parametrize("mask", ["window", "window on both sides"])
def test_hidden_keys_and_values_are_those_of_the_program(mask: str) -> None:
    """A hidden key may be anything; a hidden value makes NaN of every query, as 0 times it."""
    arrays = drawn(300, 300)
    _, k, v = arrays
    k[0, 0, 0], k[0, 0, 299] = np.nan, np.inf
    mod = model(mask, 300, 300)
    result = compiled(mask, 300, 300)(*arrays)
    assert not np.isnan(result[0, 0, 100:200]).any()
    np.testing.assert_allclose(result, by_tvm(mod, arrays), rtol=0, atol=5e-6)
    v[0, 0, 2, 3], v[0, 0, 298, 4] = np.inf, np.nan
    result = compiled(mask, 300, 300)(*arrays)
    assert np.isnan(result[0, 0, :, 3:5]).any(0).all()
    np.testing.assert_allclose(result, by_tvm(mod, arrays), rtol=0, atol=5e-6)


Z = tirx.const(0, "int64")
#: Conditions on a query, a key and a length, and whether the range is the smallest one.
CONDITIONS: dict[str, tuple[Callable[[Any, Any, Any], Any], bool]] = {
    "before": (lambda i, j, n: j < i, True),
    "window": (lambda i, j, n: tirx.And(j <= i, i - j < 5), True),
    "outside": (lambda i, j, n: tirx.Not(tirx.Or(j > i, i - j >= 5)), True),
    "absolute": (lambda i, j, n: tirx.Select(i - j >= 0, i - j, j - i) < 5, True),
    "minimum": (lambda i, j, n: j <= tirx.min(i + 3, n), False),
    "maximum": (lambda i, j, n: tirx.max(j, i) - i < 4, True),
    "with a length": (lambda i, j, n: tirx.And(j - i <= n, j - i >= n - 3), True),
    "every third query": (lambda i, j, n: tirx.And(3 * i - j >= 2, j + 7 > 3 * i), True),
    "every other key": (lambda i, j, n: tirx.And(2 * j <= i + 3, 2 * j >= i - 4), True),
    "the same": (lambda i, j, n: j.equal(i + 1), True),
    "either": (lambda i, j, n: tirx.Or(j.equal(i), j.equal(i - 6)), True),
    "one side": (lambda i, j, n: tirx.Or(j > i + 3, j.equal(i)), True),
    "and more": (lambda i, j, n: tirx.And(j <= i, tirx.floormod(i + j, 2).equal(Z)), False),
    "in 32 bits": (
        lambda i, j, n: tirx.And(j.astype("int32") <= i.astype("int32"), i - j < 4),
        True,
    ),
    "never together": (lambda i, j, n: tirx.And(j < i - 3, j > i + 3), False),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_ranges_have_every_key_that_is_shown(name: str) -> None:
    condition, smallest = CONDITIONS[name]
    i, j, n = (tirx.Var(each, "int64") for each in "ijn")
    keys = key_range(condition(i, j, n), i, j)
    assert keys is not None
    low, high = tirx.Var("low", "int64"), tirx.Var("high", "int64")
    size, found = 9, keys.bounds(low, high)
    analyzer = tvm.sym.Analyzer()

    def number(expr: Any, values: dict[Any, int]) -> int:
        known = {var: tirx.const(value, "int64") for var, value in values.items()}
        return int(analyzer.simplify(substitute(expr, known)))

    shown = {
        (a, b)
        for a in range(12)
        for b in range(-12, 46)
        if number(condition(i, j, n), {i: a, j: b, n: size})
    }
    for first, last in ((0, 0), (3, 7), (0, 11)):
        needed = [b for a, b in shown if first <= a <= last]
        bounds = [
            outside if bound is None else number(bound, {low: first, high: last, n: size})
            for bound, outside in zip(found, (-12, 45), strict=True)
        ]
        if needed:
            assert bounds[0] <= min(needed) and max(needed) <= bounds[1]
        if smallest:
            assert bounds == [min(needed), max(needed)]


def test_ranges_of_conditions_bit_by_bit() -> None:
    i, j = (tirx.Var(each, "int64") for each in "ij")
    shown = tirx.bitwise_and(j <= i, tirx.bitwise_not(tirx.bitwise_or(i - j >= 5, j > i)))
    keys = key_range(shown, i, j)
    assert keys is not None and keys.bounds(8, 15) == (4, 15)


@pytest.mark.parametrize(
    "condition",
    [
        lambda i, j, x: i * j >= 5,
        lambda i, j, x: i >= 5,
        lambda i, j, x: tirx.Or(j <= i, i * i > 7),
        lambda i, j, x: tirx.NE(j, i),
        lambda i, j, x: j.astype("int8") <= i.astype("int8"),
        lambda i, j, x: j.astype("float32") <= i.astype("float32"),
        lambda i, j, x: j <= tirx.BufferLoad(x, [i]),
    ],
    ids=["product", "query alone", "or anything", "not equal", "wraps", "floats", "load"],
)
def test_other_conditions_have_no_range(condition: Callable[[Any, Any, Any], Any]) -> None:
    i, j = (tirx.Var(each, "int64") for each in "ij")
    assert key_range(condition(i, j, tirx.decl_buffer([9], "int64", "x")), i, j) is None
