"""`check` of cascades over integers: what holds modulo 2**n is proved, what needs more is not."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.ir import prim
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from cascade_integers import Chain
from certified import buffers
from fuse_epilogue.tir.build import with_fields
from fuse_epilogue.tir.walk import substitute
from fuse_epilogue.verify import CertificateError, check


def _as(dtype: str, value: Any) -> Any:
    return prim.Cast(dtype, value)


def _selected(x: Any, v: Any, m: Any, *_: Any) -> Any:
    return _as("int8", x.equal(m)) * v


def _squared(x: Any, mean: Any) -> Any:
    return (x - mean) * (x - mean)


def _mean(total: Any, count: Any) -> Any:
    return tirx.truncdiv(total, count)


def _shifted_mean(state: Any, old: Any, new: Any, count: Any) -> Any:
    """As it is for a true mean."""
    means = _mean(old, prim.Max(count, tirx.const(1, "int32"))), _mean(new, count + 3)
    return state + _squared(*means) * count


def _exponential(x: Any, m: Any) -> Any:
    return tirx.exp(_as("float32", x - m))


def _hundreds(dtype: str, x: Any, v: Any) -> Any:
    hundred = tirx.const(100, dtype)
    a, b = (_as(dtype, each > tirx.const(0, "int8")) for each in (x, v))
    below = a * hundred + b * hundred < tirx.const(120, dtype)
    return tirx.Select(below, v, tirx.const(0, "int8"))


RIGHT = {
    "a factor of a sum": Chain(
        term=lambda x, v, m: v * m, step=lambda x, v, m, n: v, tail=lambda f, m: f * m
    ),
    "a smaller one for a largest": Chain(
        second="max",
        term=lambda x, v, m: prim.Min(v, m),
        step=lambda x, v, m, n: v,
        tail=lambda f, m: prim.Max(prim.Min(f, m), tirx.const(-128, "int8")),
    ),
    "what belongs to the largest": Chain(
        rule="select",
        term=_selected,
        step=_selected,
        correction=lambda s, old, new, n: s * _as("int8", old.equal(new)),
    ),
    "differences from a sum": Chain(
        x="int32",
        y="int32",
        head="sum",
        rule="basis",
        term=lambda x, v, m: x - m,
        step=lambda x, v, m, n: x - m,
        correction=lambda s, old, new, n: s + (old - new) * n,
    ),
    "the same in 8 bits": Chain(
        head="sum",
        rule="basis",
        term=lambda x, v, m: x - m,
        step=lambda x, v, m, n: x - m,
        correction=lambda s, old, new, n: s + (old - new) * _as("int8", n),
    ),
}

WRONG = {
    "a sum for a largest": Chain(
        second="max",
        term=lambda x, v, m: v + m,
        step=lambda x, v, m, n: v,
        tail=lambda f, m: prim.Max(f + m, tirx.const(-128, "int8")),
    ),
    "a factor for a largest": Chain(
        x="uint8",
        y="uint8",
        second="max",
        term=lambda x, v, m: v * tirx.const(2, "uint8"),
        step=lambda x, v, m, n: v,
        tail=lambda f, m: prim.Max(f * tirx.const(2, "uint8"), tirx.const(0, "uint8")),
    ),
    "a difference for a smallest": Chain(
        x="uint8",
        y="uint8",
        second="min",
        term=lambda x, v, m: v - m,
        step=lambda x, v, m, n: v,
        tail=lambda f, m: prim.Min(f - m, tirx.const(255, "uint8")),
    ),
    "a sum for a largest float": Chain(
        x="float32",
        y="float32",
        second="max",
        term=lambda x, v, m: v + m,
        step=lambda x, v, m, n: v,
        tail=lambda f, m: prim.Max(f + m, tirx.const(float("-inf"), "float32")),
    ),
    "a division of a sum": Chain(
        x="int32",
        y="int32",
        term=lambda x, v, m: tirx.truncdiv(v, m),
        step=lambda x, v, m, n: v,
        tail=lambda f, m: tirx.truncdiv(f, m),
    ),
    "a variance around a truncated mean": Chain(
        x="int32",
        y="int32",
        head="sum",
        rule="basis",
        term=lambda x, v, m: _squared(x, tirx.truncdiv(m, tirx.const(6, "int32"))),
        step=lambda x, v, m, n: _squared(x, _mean(m, n)),
        correction=_shifted_mean,
    ),
    "a truncated quotient": Chain(
        x="int32",
        y="int32",
        rule="roll",
        term=lambda x, v, m: v * m,
        step=lambda x, v, m, n: v * m,
        correction=lambda s, old, new, n: s * tirx.truncdiv(new, old),
    ),
    "exponentials of what wraps around": Chain(
        y="float32",
        rule="roll",
        term=lambda x, v, m: _exponential(x, m),
        step=lambda x, v, m, n: _exponential(x, m),
        correction=lambda s, old, new, n: s * _exponential(old, new),
    ),
    "a sum of 8 bits that is folded": Chain(
        y="int32",
        between=lambda m, b: m + tirx.const(1, "int8"),
        term=lambda x, v, c: v * prim.Max(_as("int32", c), tirx.const(-127, "int32")),
        step=lambda x, v, m, n: v,
        tail=lambda f, m: (
            f * prim.Max(_as("int32", m + tirx.const(1, "int8")), tirx.const(-127, "int32"))
        ),
    ),
    "a comparison of floats that is negated": Chain(
        x="float32",
        y="float32",
        between=lambda m, b: m < tirx.const(1.0, "float32"),
        term=lambda x, v, c: v * _as("float32", prim.Not(c)),
        step=lambda x, v, m, n: v,
        tail=lambda f, m: f * _as("float32", prim.Not(m < tirx.const(1.0, "float32"))),
    ),
    "literals that wrap around": Chain(
        y="int32",
        between=lambda m, b: tirx.const(100, "int8"),
        term=lambda x, v, c: v * _as("int32", prim.Add(c, c)),
        step=lambda x, v, m, n: v * tirx.const(200, "int32"),
        tail=lambda f, m: f,
    ),
    "conditions counted in another type": Chain(
        term=lambda x, v, m: _hundreds("int8", x, v),
        step=lambda x, v, m, n: _hundreds("int32", x, v),
        tail=lambda f, m: f,
    ),
    "a count in a type that holds less": Chain(
        y="float32",
        state="float16",
        term=lambda x, v, m: _as("float32", v > tirx.const(0, "float32")),
        step=lambda x, v, m, n: _as("float16", v > tirx.const(0, "float32")),
        tail=lambda f, m: _as("float32", f),
    ),
    "a count that wraps around": Chain(
        x="float32",
        y="float32",
        head="sum",
        rule="basis",
        term=lambda x, v, m: x - m,
        step=lambda x, v, m, n: x - m,
        correction=lambda s, old, new, n: s + (old - new) * _as("float32", _as("int8", n)),
    ),
    "rounded where it must be exact": Chain(
        x="float32",
        y="float32",
        second="max",
        numerics="exact",
        term=lambda x, v, m: v,
        step=lambda x, v, m, n: (v + x) - x,
        tail=lambda f, m: prim.Max(f, tirx.const(float("-inf"), "float32")),
    ),
}


#: Those that TVM's simplifier would make wrong.
FOLDED = {"a sum of 8 bits that is folded", "a comparison of floats that is negated"}


@pytest.mark.parametrize("name", RIGHT)
def test_what_holds_modulo_a_power_of_two_is_proved(name: str) -> None:
    given = RIGHT[name].build()
    check(given.before, given.after, given.claims)


@pytest.mark.parametrize("name", WRONG)
def test_what_needs_more_is_not_proved(name: str) -> None:
    given = WRONG[name].build()
    with pytest.raises(CertificateError, match="simplifier" if name in FOLDED else None):
        check(given.before, given.after, given.claims)


_OVERWRITE = """
@T.prim_func(s_tir=True)
def main(v: T.Buffer((2, 6), "int8"), x: T.Buffer((2, 6), "int8")):
    for i, k in T.grid(2, 6):
        with T.sblock("overwrite"):
            vi, vk = T.axis.remap("SS", [i, k])
            x[vi, vk] = v[vi, vk]
"""


@pytest.mark.parametrize("first", [False, True])
def test_keys_are_read_before_they_are_overwritten(first: bool) -> None:
    given = RIGHT["a factor of a sum"].build()
    nest = tvm.script.from_source(_OVERWRITE, {"T": T})
    memory = buffers(given.before)
    swapped = {param: memory[str(param.name)] for param in nest.params}
    copy = substitute(nest.body.block.body, swapped)

    def with_copy(func: PrimFunc, first: bool) -> PrimFunc:
        root = func.body.block
        parts = [copy, *root.body] if first else [*root.body, copy]
        body = tirx.SeqStmt(parts)
        return func.with_body(with_fields(func.body, block=with_fields(root, body=body)))

    before, after = with_copy(given.before, False), with_copy(given.after, first)
    if not first:
        check(before, after, given.claims)
        return
    with pytest.raises(CertificateError, match="order"):
        check(before, after, given.claims)
