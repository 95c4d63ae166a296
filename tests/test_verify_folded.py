"""Literals that TVM folds where an operand is absorbed: the product of two literals is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.ir import prim
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from certified import Certified, mapped
from fuse_epilogue.verify import CertificateError, check

N, K = 8, 4


def number(value: float, dtype: str = "float32") -> Any:
    return prim.FloatImm(dtype, value)


def program(
    finish: Callable[[Any, Any], Any],
    scale: Callable[[Any], Any] = lambda t: t,
    dtype: str = "float32",
) -> PrimFunc:
    """D = finish(sum of scale(A), C)."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((N, K), dtype), C: T.Buffer((N,), dtype), D: T.Buffer((N,), dtype)):
        temp = T.sblock_alloc_buffer((N,), dtype)
        for i, k in T.grid(N, K):
            with T.sblock("red"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = T.cast(0, dtype)
                temp[vi] = temp[vi] + scale(A[vi, vk])
        for i in range(N):
            with T.sblock("epi"):
                vi = T.axis.spatial(N, i)
                D[vi] = finish(temp[vi], C[vi])

    return func


def fused(func: PrimFunc, **options: Any) -> Certified:
    sch = tvm.s_tir.Schedule(func)
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue("red", **options)
    return Certified(before, sch.mod["main"], report.certificate)


def distributed(*parts: Any, **options: Any) -> Certified:
    return fused(program(*parts, **options), distribute=True)


# By what is folded; and the literal that there is after.
FOLDED: dict[str, tuple[Callable[[], Certified], float]] = {
    "two factors": (lambda: distributed(lambda x, c: x * number(0.1) * number(0.3)), 0.03),
    "three factors": (
        lambda: distributed(lambda x, c: x * number(0.1) * number(0.3) * number(0.7)),
        0.021,
    ),
    "another order": (
        lambda: fused(
            program(lambda x, c: x * number(0.1), lambda t: t * number(0.7) * number(0.9))
        ),
        0.09,
    ),
    "with a sum": (lambda: distributed(lambda x, c: (x * number(0.1) - c) * number(0.3)), 0.03),
    "under a maximum": (
        lambda: distributed(lambda x, c: T.max(x * number(0.1) * number(0.3), number(0.0))),
        0.03,
    ),
    "double": (
        lambda: distributed(
            lambda x, c: x * number(0.1, "float64") * number(0.3, "float64"), dtype="float64"
        ),
        0.03,
    ),
}


def checked(given: Certified) -> None:
    check(given.before, given.after, given.certificate)


@pytest.mark.parametrize("name", FOLDED)
def test_folded_literals_are_believed_up_to_their_rounding(name: str) -> None:
    make, value = FOLDED[name]
    given = make()
    checked(given)
    unit = float(np.finfo(str(given.certificate.accumulator.ty.dtype)).eps) / 2

    def near(found: Any) -> bool:
        return bool(abs(found.value - value) < 1e-6 * value)

    for part in (-1e-3, -32 * unit, 32 * unit, 1e-3):
        changed = mapped(
            prim.FloatImm,
            lambda found, part=part: number(found.value * (1 + part), str(found.ty.dtype)),
            near,
        )
        with pytest.raises(CertificateError, match="distributed|value"):
            checked(given.storing(changed))


def test_a_quotient_of_literals_is_rounded() -> None:
    quotient = prim.Div(number(0.1), number(0.3))
    given = fused(program(lambda x, c: T.max(x + quotient, c)))
    checked(given)
    other = mapped(prim.Div, lambda found: prim.Div(found.a, number(0.2)))
    with pytest.raises(CertificateError, match="init"):
        checked(given.storing(other))


def test_nothing_is_folded_where_floats_are_exact() -> None:
    given = fused(program(lambda x, c: x * number(0.1) * number(0.3)), numerics="exact")
    checked(given)

    def folded(found: Any) -> Any:
        return found.a.a * number(float(np.float32(0.1) * np.float32(0.3)))

    once = mapped(prim.Mul, folded, lambda found: isinstance(found.a, prim.Mul))
    with pytest.raises(CertificateError, match="value"):
        checked(given.storing(once))
