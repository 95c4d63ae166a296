"""Every code of a cascade: a program that is refused with it, and what a check is there for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue.verify import CertificateError, check
from mutation import switch_off

pytestmark = pytest.mark.cpp

ROWS, KEYS = 4, 10
F = "float32"


def rows(n: Any = KEYS, dtype: str = F) -> Any:
    return te.placeholder((ROWS, n), dtype, name="x")


def largest(x: Any, reducer: Any = te.max) -> Any:
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((ROWS,), lambda i: reducer(x[i, k], axis=k), name="m")


def total(x: Any, term: Callable[[Any, Any], Any], n: Any = None) -> Any:
    k = te.reduce_axis((0, x.shape[1] if n is None else n), "l")
    return te.compute((ROWS,), lambda i: te.sum(term(i, k), axis=k), name="s")


def chain(
    term: Callable[[Any, Any, Any, Any], Any],
    *,
    reducer: Any = te.max,
    n: Any = None,
    x: Any = None,
) -> Any:
    """A maximum m of each row of x, and the sum of term(x, m, i, k)."""
    x = rows() if x is None else x
    m = largest(x, reducer)
    return te.create_prim_func([x, total(x, lambda i, k: term(x, m, i, k), n)])


def softmax_sum(**options: Any) -> Any:
    return chain(lambda x, m, i, k: te.exp(x[i, k] - m[i]), **options)


def from_infinity() -> Any:
    return te.comm_reducer(lambda a, b: te.max(a, b), lambda t: tirx.const(-np.inf, t))


def masked_first_row() -> Any:
    """No key of the first row counts: its maximum is -inf, its sum is 0."""
    x, k, highest = rows(), te.reduce_axis((0, KEYS), "k"), from_infinity()

    def masked(i: Any, value: Any, other: float) -> Any:
        return tirx.Select(i > 0, value, tirx.const(other, F))

    m = te.compute((ROWS,), lambda i: highest(masked(i, x[i, k], -np.inf), axis=k), name="m")
    s = total(x, lambda i, k: masked(i, te.exp(x[i, k] - m[i]), 0.0))
    return te.create_prim_func([x, s])


def one_reduction() -> Any:
    x = rows()
    return te.create_prim_func([x, te.compute((ROWS,), lambda i: largest(x)[i] * 2.0, name="s")])


def perhaps_empty() -> Any:
    return softmax_sum(x=rows(te.var("n")))


def doubled_between() -> Any:
    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((ROWS, KEYS), F), s: T.Buffer((ROWS,), F)):  # type: ignore[no-untyped-def]
        m = T.sblock_alloc_buffer((ROWS,), F)
        for i, k in T.grid(ROWS, KEYS):
            with T.sblock("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    m[vi] = T.min_value(F)
                m[vi] = T.max(m[vi], x[vi, vk])
        for i, k in T.grid(ROWS, KEYS):
            with T.sblock("twice"):
                vi, vk = T.axis.remap("SS", [i, k])
                x[vi, vk] = x[vi, vk] * T.float32(2)
        for i, k in T.grid(ROWS, KEYS):
            with T.sblock("s"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    s[vi] = T.float32(0)
                s[vi] = s[vi] + T.exp(x[vi, vk] - m[vi])

    return func


def summed_under_a_condition() -> Any:
    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((ROWS, KEYS), F), s: T.Buffer((ROWS,), F)):  # type: ignore[no-untyped-def]
        m = T.sblock_alloc_buffer((ROWS,), F)
        for i, k in T.grid(ROWS, KEYS):
            with T.sblock("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    m[vi] = T.min_value(F)
                m[vi] = T.max(m[vi], x[vi, vk])
        for i, k in T.grid(ROWS, KEYS):
            with T.sblock("s"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    s[vi] = T.float32(0)
                if vk < 7:
                    s[vi] = s[vi] + T.exp(x[vi, vk] - m[vi])

    return func


def product_first() -> Any:
    x, product = rows(), te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t))
    m = largest(x, product)
    return te.create_prim_func([x, total(x, lambda i, k: x[i, k] * m[i])])


def parallel(sch: Any) -> None:
    sch.parallel(sch.get_loops(sch.get_sblock("s"))[0])


@dataclass(frozen=True)
class Refused:
    """A program, and how the primitive is called on it."""

    make: Callable[[], Any]
    numerics: Any = "reassociate"
    schedule: Callable[[Any], None] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


#: By the code.
REFUSED = {
    "no-cascade": Refused(one_reduction),
    "cascade-form": Refused(summed_under_a_condition),
    "cascade-loops": Refused(softmax_sum, schedule=parallel),
    "cascade-row": Refused(lambda: chain(lambda x, m, i, k: te.exp(x[i, k] - m[ROWS - 1 - i]))),
    "cascade-domain": Refused(lambda: softmax_sum(n=KEYS - 1)),
    "cascade-empty": Refused(perhaps_empty),
    "cascade-start": Refused(masked_first_row),
    "cascade-term": Refused(lambda: chain(lambda x, m, i, k: te.abs(x[i, k] - 2.0 * m[i]))),
    "cascade-cast": Refused(
        lambda: chain(lambda x, m, i, k: te.exp(x[i, k] - m[i]).astype("float16").astype(F))
    ),
    "cascade-condition": Refused(
        lambda: chain(
            lambda x, m, i, k: tirx.Select(x[i, k] > m[i] - 5.0, x[i, k], tirx.const(0.0, F))
        )
    ),
    "cascade-expanding": Refused(lambda: softmax_sum(reducer=te.min)),
    "cascade-range": Refused(lambda: chain(lambda x, m, i, k: te.exp(x[i, KEYS - 1 - k] - m[i]))),
    "cascade-narrow": Refused(lambda: softmax_sum(x=rows(dtype="float16"))),
    "cascade-exact": Refused(softmax_sum, "exact"),
    "cascade-order": Refused(doubled_between),
    "cascade-loop": Refused(softmax_sum, arguments={"factor": 2**40}),
    "cascade-parts": Refused(product_first, arguments={"parts": 2}),
}

#: Checks without which the primitive goes on, and data on which the result is another one then.
NEEDED = {
    "cascade-start": np.ones((ROWS, KEYS), F),
    "cascade-expanding": np.linspace(300, 0, KEYS, dtype=F) * np.ones((ROWS, 1), F),
    "cascade-range": np.where(np.arange(KEYS) == 9, 200.0, 60.0).astype(F) * np.ones((ROWS, 1), F),
    "cascade-order": np.linspace(0, 3, ROWS * KEYS, dtype=F).reshape(ROWS, KEYS),
}


@pytest.fixture(autouse=True)
def all_checks_on_again() -> Iterator[None]:
    yield
    switch_off([])


def call(case: Refused, factor: int = 4) -> Any:
    sch = Schedule(case.make())
    if case.schedule is not None:
        case.schedule(sch)
    sch.fuse_cascaded_reductions(
        "s", numerics=case.numerics, **{"factor": factor, **case.arguments}
    )
    return sch.mod["main"]


def test_every_code_has_a_program() -> None:
    codes = {code for code in fuse_epilogue.REFUSALS if "cascade" in code}
    assert codes == set(REFUSED)


@pytest.mark.parametrize("code", REFUSED)
def test_is_refused_with_its_code(code: str) -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        call(REFUSED[code])
    assert fuse_epilogue.refusal_code(caught.value) == code


@pytest.mark.parametrize("code", NEEDED)
def test_without_the_check_the_result_is_another_one(code: str) -> None:
    case = REFUSED[code]
    switch_off([code])
    fused = call(case)
    results = []
    for func in (case.make(), fused):
        x, s = tvm.runtime.tensor(NEEDED[code].copy()), tvm.runtime.tensor(np.zeros(ROWS, F))
        tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")["main"](x, s)
        results.append(s.numpy())
    assert not np.allclose(*results, rtol=1e-3, equal_nan=True), results


def of_a_sum(exponent: Callable[..., Any]) -> Any:
    """Return a sum over the maximum of sums, whose exponent is written otherwise."""
    x, w = (te.placeholder((ROWS, KEYS), F, name=name) for name in "xw")
    k, j = (te.reduce_axis((0, KEYS), name=name) for name in "kj")
    m = te.compute((ROWS,), lambda i: te.max(x[i, k] + w[i, k], axis=k), name="m")
    terms = lambda i: te.sum(te.exp(exponent(x[i, j], w[i, j], m[i])), axis=j)  # noqa: E731
    return te.create_prim_func([x, w, te.compute((ROWS,), terms, name="s")])


@pytest.mark.parametrize("exponent", [lambda x, w, m: x + (w - m), lambda x, w, m: (x - m) + w])
def test_a_sum_that_rounds_otherwise_than_its_maximum(exponent: Callable[..., Any]) -> None:
    """It may round to more than 0: infinite at a maximum so far, and NaN when it is corrected."""
    sch = Schedule(of_a_sum(exponent))
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_cascaded_reductions("s", factor=4)
    assert fuse_epilogue.refusal_code(caught.value) == "cascade-range"

    sch = Schedule(of_a_sum(lambda x, w, m: 0.5 * (x + w) - 0.5 * m))
    sch.fuse_cascaded_reductions("s", factor=4)


@pytest.mark.parametrize("first", [-np.inf, -3e38])
@pytest.mark.parametrize(
    "exponent", [lambda x, m: 2 * x - 2 * m, lambda x, m: (x / 0.25 - m / 0.25) * 0.25]
)
def test_a_multiple_of_a_result_that_is_not_final(
    exponent: Callable[..., Any], first: float
) -> None:
    """It is infinite before the program's is: keys that come first would make a NaN."""
    func = chain(lambda x, m, i, k: te.exp(exponent(x[i, k], m[i])))
    with pytest.raises(s_tir.ScheduleError, match="multiply the difference") as caught:
        Schedule(func).fuse_cascaded_reductions("s", factor=4)
    assert fuse_epilogue.refusal_code(caught.value) == "cascade-range"

    switch_off(["cascade-range"])
    sch = Schedule(func)
    report = sch.fuse_cascaded_reductions("s", factor=4)
    x = np.zeros((ROWS, KEYS), F)
    x[:, :4] = first
    results = []
    for each in (func, sch.mod["main"]):
        s = tvm.runtime.tensor(np.zeros(ROWS, F))
        built = tvm.compile(each.with_attr("global_symbol", "main"), target="llvm")
        built["main"](tvm.runtime.tensor(x), s)
        results.append(s.numpy())
    assert np.isfinite(results[0]).all() and np.isnan(results[1]).all()
    with pytest.raises(CertificateError, match="inf - inf"):
        check(func, sch.mod["main"], report.certificate)
