"""Fusions written by hand, with certificates written by hand: right ones, and plausible wrong ones.

The checker sees neither schedules nor the primitive here, only two functions and a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from certified import block, buffers, filling, mapped, one, top_level
from fuse_epilogue import Certificate
from fuse_epilogue.certificate import EpilogueProof
from fuse_epilogue.verify import CertificateError, NotEquivalent, check, equivalent

M, K = 6, 5
Function = Callable[[Any, Any], Any]


def unfused(
    finish: Function,
    *,
    combine: Function = lambda x, t: x + t,
    initial: float = 0,
    acc: str = "float32",
    out: str | None = None,
) -> PrimFunc:
    """Block "red" reduces A[i, k] over k, block "epi" stores ``finish(temp[i], C[i])``."""
    out = out or acc

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((M, K), acc), C: T.Buffer((M,), acc), D: T.Buffer((M,), out)):
        temp = T.sblock_alloc_buffer((M,), acc)
        for i, k in T.grid(M, K):
            with T.sblock("red"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = T.cast(initial, acc)
                temp[vi] = combine(temp[vi], A[vi, vk])
        for j in range(M):
            with T.sblock("epi"):
                vj = T.axis.spatial(M, j)
                D[vj] = finish(temp[vj], C[vj])

    return func


def find(func: PrimFunc, name: str) -> Any:
    """The SBlockRealize of a block."""
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (type(func.body), found.append))
    return next(one for one in found if one.block.name_hint == name)


@dataclass(frozen=True)
class Claim:
    """A fusion by hand: what the reduction starts from and combines, and what is claimed of it."""

    finish: Function
    absorbed: Function
    distributed: Function = lambda x, c: x
    monoid: str = "sum"
    monoid_after: str = ""
    combine: Function = lambda x, t: x + t
    combine_after: Function | None = None
    initial: float = 0
    acc: str = "float32"
    out: str = ""

    def build(self) -> tuple[PrimFunc, PrimFunc, Certificate]:
        """The function, the function with the epilogue gone, and a certificate."""
        before = unfused(
            self.finish,
            combine=self.combine,
            initial=self.initial,
            acc=self.acc,
            out=self.out or self.acc,
        )
        held = buffers(before)
        temp, c, d = held["temp"], held["C"], held["D"]
        reduction, epilogue = find(before, "red"), find(before, "epi")
        (vi, vk), (vj,) = ([a.var for a in r.block.iter_vars] for r in (reduction, epilogue))
        (i, k), (j,) = ([*r.iter_values] for r in (reduction, epilogue))
        bias = tirx.BufferLoad(c, [vi])
        hole = Var("x", self.acc)
        absorbed, distributed = self.absorbed(hole, bias), self.distributed(hole, bias)
        init = self.absorbed(reduction.block.init.value, bias)
        step = self.combine_after or self.combine
        load = tirx.BufferLoad(d, [vi])
        term = tirx.BufferLoad(held["A"], [vi, vk])
        point = tirx.BufferRegion(c, [one(vi)])
        steps = [
            top_level(lambda parts: parts[:1]),
            block(
                "red",
                init=tirx.BufferStore(d, init, [vi]),
                body=tirx.BufferStore(d, step(load, self.distributed(term, bias)), [vi]),
                reads=lambda regions: [*regions, point],
                writes=[tirx.BufferRegion(d, [one(vi)])],
            ),
            block("root", alloc_buffers=[]),
        ]
        after = before
        for change in steps:
            after = change(after)
        certificate = Certificate(
            numerics="reassociate",
            reassociates=self.acc.startswith(("float", "bfloat")),
            reduction="red",
            monoid=self.monoid,
            monoid_after=self.monoid_after or self.monoid,
            accumulator=temp,
            indices=(vi,),
            result=d,
            result_indices=(vi,),
            hole=hole,
            absorbed=absorbed,
            distributed=distributed,
            init=init,
            loops=(i, k),
            inverse=(vi, vk),
            epilogues=(EpilogueProof("epi", (vj,), (vi,), (j,), (vj,)),),
            tails=(),
            removed=(temp,),
            kept=(),
        )
        return before, after, certificate


def plus(x: Any, c: Any) -> Any:
    return x + c


def times(x: Any, c: Any) -> Any:
    return x * c


def identity(x: Any, c: Any) -> Any:
    return x


def relu(x: Any, c: Any) -> Any:
    return tirx.max(x, tirx.const(0, x.ty.dtype))


def twice(x: Any, c: Any) -> Any:
    return x * tirx.const(2, x.ty.dtype)


def negative(x: Any, c: Any) -> Any:
    return tirx.const(0, x.ty.dtype) - x


def minus(x: Any, c: Any) -> Any:
    return c - x


def larger(x: Any, c: Any) -> Any:
    return tirx.max(x, c)


# A right fusion, the same with one thing wrong, and the claim that is refused.
PAIRS: dict[str, tuple[Claim, Claim, str]] = {
    "bias": (Claim(plus, plus), Claim(plus, twice), "absorbed"),
    "relu taken for a bias": (Claim(plus, plus), Claim(relu, relu), "absorbed"),
    "scale of init only": (Claim(twice, twice, twice), Claim(twice, twice), "absorbed"),
    "scale of terms only": (
        Claim(times, times, times, initial=3, acc="int32"),
        Claim(times, identity, times, initial=3, acc="int32"),
        "absorbed",
    ),
    "subtracted sum": (Claim(minus, minus, negative), Claim(minus, minus), "absorbed"),
    "bias of a maximum": (
        Claim(plus, plus, plus, "max", combine=tirx.max, initial=-9),
        Claim(plus, plus, monoid="max", combine=tirx.max, initial=-9),
        "absorbed",
    ),
    "bias of an integer maximum wraps": (
        Claim(larger, larger, monoid="max", combine=tirx.max, acc="int8"),
        Claim(plus, plus, plus, "max", combine=tirx.max, acc="int8"),
        "absorbed",
    ),
    "maximum of a sum": (
        Claim(larger, larger, monoid="max", combine=tirx.max),
        Claim(larger, larger),
        "absorbed",
    ),
    "decreasing function": (
        Claim(minus, minus, minus, "max", "min", tirx.max, tirx.min),
        Claim(minus, minus, minus, "max", combine=tirx.max),
        "absorbed",
    ),
    "sum in 16 bits": (
        Claim(plus, plus, acc="int16"),
        Claim(plus, plus, acc="float16"),
        "reassociates",
    ),
    "product in 16 bits": (
        Claim(times, times, monoid="product", combine=times, initial=1),
        Claim(times, times, monoid="product", combine=times, initial=1, acc="bfloat16"),
        "reassociates",
    ),
    "a narrower output": (
        Claim(plus, plus, acc="int32"),
        Claim(
            lambda x, c: (x + c).astype("int8"),
            lambda x, c: (x + c).astype("int8"),
            lambda x, c: x.astype("int8"),
            acc="int32",
            out="int8",
        ),
        "result",
    ),
    "a difference is no monoid": (
        Claim(plus, plus),
        Claim(plus, plus, combine=lambda x, t: t - x, combine_after=lambda x, t: t - x),
        "monoid",
    ),
    "the accumulator twice": (
        Claim(plus, plus),
        Claim(plus, plus, combine=lambda x, t: x + t * x, combine_after=lambda x, t: x + t * x),
        "monoid",
    ),
    "and over or": (
        Claim(
            lambda x, c: x & c,
            lambda x, c: x & c,
            lambda x, c: x & c,
            "bit-wise or",
            combine=lambda x, t: x | t,
            acc="uint8",
        ),
        Claim(
            lambda x, c: x & c,
            lambda x, c: x & c,
            monoid="bit-wise or",
            combine=lambda x, t: x | t,
            acc="uint8",
        ),
        "absorbed",
    ),
}


def test_memory_that_rounds_is_not_taken_over_for_a_sum() -> None:
    """An allocated bfloat16 is kept as it was computed; a parameter is rounded at each step."""

    def copied(monoid: str, combine: Function, initial: float) -> tuple:
        same_ = Claim(lambda x, c: x, lambda x, c: x, monoid=monoid, combine=combine)
        before, after, certificate = replace(same_, initial=initial, acc="bfloat16").build()
        return before, after, replace(certificate, reassociates=False)

    check(*copied("max", T.max, -(2.0**100)))
    with pytest.raises(CertificateError, match="'D' and 'temp' round differently") as caught:
        check(*copied("sum", lambda x, t: x + t, 0))
    assert caught.value.claim == "result"


@pytest.mark.parametrize("name", PAIRS)
def test_right_fusions_are_accepted(name: str) -> None:
    right, _, _ = PAIRS[name]
    before, after, certificate = right.build()
    check(before, after, certificate)
    assert equivalent(before, after).proved


@pytest.mark.parametrize("name", PAIRS)
def test_wrong_fusions_are_refused(name: str) -> None:
    _, wrong, claim = PAIRS[name]
    before, after, certificate = wrong.build()
    with pytest.raises(CertificateError) as caught:
        check(before, after, certificate)
    assert caught.value.claim == claim, caught.value


# Wrong ones that still compute the same, up to rounding.
HARMLESS = {"sum in 16 bits", "product in 16 bits", "a narrower output"}


@pytest.mark.parametrize("name", sorted(set(PAIRS) - HARMLESS))
def test_wrong_fusions_are_not_equivalent(name: str) -> None:
    """What the checker refuses here is really wrong: the two halves of `verify` agree."""
    _, wrong, _ = PAIRS[name]
    before, after, _ = wrong.build()
    with pytest.raises(NotEquivalent):
        equivalent(before, after, compiled=False)


def test_exact_numerics_and_a_reordered_sum() -> None:
    before, after, certificate = PAIRS["bias"][0].build()
    with pytest.raises(CertificateError, match="^numerics"):
        check(before, after, replace(certificate, numerics="exact"))
    before, after, certificate = Claim(plus, plus, acc="int32").build()
    check(before, after, replace(certificate, numerics="exact"))


def test_an_init_that_comes_last() -> None:
    """Where T.init runs after updates, an init that reads the output reads what they wrote."""

    def build(reverse: bool) -> tuple[PrimFunc, PrimFunc, Certificate]:
        before, after, certificate = Claim(plus, plus, acc="int32").build()
        # In place: the bias is what the output held.
        c, d = buffers(before)["C"], buffers(before)["D"]
        in_place = mapped(
            TensorLoad,
            lambda load: tirx.BufferLoad(d, list(load.indices)),
            lambda load: load.source.same_as(c),
        )
        vi = certificate.indices[0]
        own = tirx.BufferRegion(d, [one(vi)])
        before = in_place(before)
        after = block("red", reads=lambda regions: [*regions, own])(in_place(after))
        init = tirx.BufferLoad(d, [vi])
        certificate = replace(certificate, init=init, absorbed=certificate.hole + init)
        if reverse:
            k = certificate.loops[1]
            backwards = mapped(
                type(before.body),
                lambda r: type(r)([r.iter_values[0], K - 1 - k], r.predicate, r.block),
                lambda r: r.block.name_hint == "red",
            )
            before, after = backwards(before), backwards(after)
            vk = certificate.inverse[1]
            certificate = replace(certificate, inverse=(vi, K - 1 - vk))
        return before, after, certificate

    check(*build(False))
    with pytest.raises(CertificateError, match="^init: an update may come before"):
        check(*build(True))


def test_a_bias_made_in_between() -> None:
    before, after, certificate = Claim(plus, plus).build()
    work = filling("work", buffers(before)["C"])
    first = top_level(lambda parts: [work, *parts])
    check(first(before), first(after), certificate)
    middle = top_level(lambda parts: [parts[0], work, *parts[1:]])
    with pytest.raises(CertificateError, match="^order"):
        check(middle(before), middle(after), certificate)
