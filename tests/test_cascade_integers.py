"""Cascades of integers: what wraps around, what is divided, and what TVM would fold in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue

pytestmark = pytest.mark.cpp

ROWS, KEYS = 2, 8
Terms = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Chain:
    """A maximum or sum of each row of x, perhaps a value in between, and one of terms."""

    first: Any
    second: Any
    term: Terms
    between: Callable[[Any], Any] | None = None
    dtype: str = "int8"

    def func(self) -> Any:
        x = te.placeholder((ROWS, KEYS), self.dtype, name="x")
        k, j = (te.reduce_axis((0, KEYS), name) for name in "kj")
        row = te.compute((ROWS,), lambda i: self.first(x[i, k], axis=k), name="m")
        if self.between is not None:
            made = row
            row = te.compute((ROWS,), lambda i: self.between(made[i]), name="c")  # type: ignore[misc]
        s = te.compute((ROWS,), lambda i: self.second(self.term(x[i, j], row[i]), axis=j), name="s")
        return te.create_prim_func([x, s])


def squared_deviation(divide: Callable[[Any, int], Any]) -> Terms:
    return lambda x, total: (x - divide(total, KEYS)) * (x - divide(total, KEYS))


def less_than_the_next(m: Any) -> Any:
    return tirx.Select(m + tirx.const(1, "int8") < tirx.const(0, "int8"), 1, 0)


REFUSED = {
    # x + m wraps in each term, and not once after the maximum.
    "a shifted maximum": ("cascade-term", Chain(te.max, te.max, lambda x, m: x + m)),
    "a shifted minimum": ("cascade-term", Chain(te.min, te.min, lambda x, m: x - m)),
    # A quotient of integers is not the mean.
    "a truncated mean": (
        "cascade-term",
        Chain(te.sum, te.sum, squared_deviation(tirx.truncdiv), dtype="int32"),
    ),
    # TVM takes m + 1 for a number from -127 on.
    "a clip after a store": (
        "cascade-form",
        Chain(
            te.max,
            te.sum,
            lambda x, c: x.astype("int32") * te.max(c.astype("int32"), tirx.const(-127, "int32")),
            lambda m: m + tirx.const(1, "int8"),
        ),
    ),
}

#: The bits that any of the keys has.
any_bit = te.comm_reducer(lambda a, b: a | b, lambda dtype: tirx.const(0, dtype), name="any_bit")

ACCEPTED = {
    "a bounded maximum": Chain(te.max, te.max, lambda x, m: te.min(x, m)),
    "a factor of bits": Chain(any_bit, te.sum, lambda x, m: x * m),
    "a factor twice": Chain(te.sum, te.sum, lambda x, m: x * m * m),
    "a factor after a store": Chain(
        te.max,
        te.sum,
        lambda x, c: x.astype("int32") * c.astype("int32"),
        lambda m: m + tirx.const(1, "int8"),
    ),
    "a choice after a store": Chain(
        te.max, te.sum, lambda x, c: x.astype("int32") * c, less_than_the_next
    ),
}


def fused(func: Any, block: str = "s") -> Any:
    sch = Schedule(func)
    report = sch.fuse_cascaded_reductions(block, factor=4)
    fuse_epilogue.verify.check(func, sch.mod["main"], report.certificate)
    return sch.mod["main"]


def computed(func: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    tensors = [tvm.runtime.tensor(each.copy()) for each in arrays]
    tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")["main"](*tensors)
    return [each.numpy() for each in tensors]


@pytest.mark.parametrize("name", REFUSED)
def test_what_holds_of_numbers_alone_is_refused(name: str) -> None:
    code, chain = REFUSED[name]
    with pytest.raises(s_tir.ScheduleError) as caught:
        fused(chain.func())
    assert fuse_epilogue.refusal_code(caught.value) == code


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_holds_of_integers_is_fused(name: str) -> None:
    chain = ACCEPTED[name]
    func = chain.func()
    x = np.array([[100, 3, -128, 127, 5, 0, -1, 9], [-100, -5, -128, -9, -4, -1, -2, -3]], "int8")
    out = np.zeros(ROWS, chain.dtype if chain.between is None else "int32")
    before, after = computed(func, [x, out]), computed(fused(func), [x, out])
    np.testing.assert_array_equal(before[1], after[1])
    assert before[1].any()


@T.prim_func(s_tir=True)
def counted_then_copied(
    S: T.Buffer((ROWS, KEYS), "int32"),
    A: T.Buffer((ROWS, KEYS), "int32"),
    m: T.Buffer((ROWS,), "int32"),
    s: T.Buffer((ROWS,), "int32"),
):
    for i, k in T.grid(ROWS, KEYS):
        with T.sblock("m"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                m[vi] = T.min_value("int32")
            m[vi] = T.max(m[vi], S[vi, vk])
    for i, k in T.grid(ROWS, KEYS):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = 0
            s[vi] += T.Cast("int32", A[vi, vk] == m[vi])
    for i, k in T.grid(ROWS, KEYS):
        with T.sblock("copy"):
            vi, vk = T.axis.remap("SS", [i, k])
            S[vi, vk] = A[vi, vk]


def copied_then_counted() -> Any:
    a = te.placeholder((ROWS, KEYS), "int32", name="A")
    k, j = (te.reduce_axis((0, KEYS), name) for name in "kj")
    copy = te.compute((ROWS, KEYS), lambda i, l: a[i, l], name="copy")
    m = te.compute((ROWS,), lambda i: te.max(copy[i, k], axis=k), name="m")
    equal = te.compute(
        (ROWS,), lambda i: te.sum((a[i, j] == m[i]).astype("int32"), axis=j), name="s"
    )
    return te.create_prim_func([a, equal])


def test_what_is_stored_later_is_not_what_was_read() -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        fused(counted_then_copied)
    assert fuse_epilogue.refusal_code(caught.value) == "cascade-range"
    fused(copied_then_counted())
