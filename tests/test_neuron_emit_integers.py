"""Integers in kernels: what is emitted is exact for all values, or it is refused.

Engines compute in float32, which does not have all integers of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

from fuse_epilogue.neuron.emit import EmitError, emit
from test_neuron_emit_refusals import DOUBLE, PRODUCT, SUM

COPY = DOUBLE.replace("t[vi, vj] * T.float32(2)", "t[vi, vj]")
BIG = 2**24 + 1


def _number(dtype: str) -> int:
    """Return a number that float32 does not have, if the type has one."""
    return BIG if "32" in dtype else 99


def _value(text: str, made: str = COPY) -> str:
    return made.replace("r[vi, vj] = t[vi, vj]", f"r[vi, vj] = {text}")


def _transposed() -> str:
    rows = """    for i in T.serial(64, annotations={"nki_dim": "P"}):
        for j in T.serial(64, annotations={"nki_dim": "F"}):
            with T.sblock("%s"):
                vi, vj = T.axis.remap("SS", [i, j])
                %s
"""
    head, _, _ = DOUBLE.partition("    T.evaluate(0)")
    return (
        f'{head}    q = T.sblock_alloc_buffer((64, 64), "float32", scope="trn.psum")\n'
        + rows % ("load", "t[vi, vj] = x[vi, vj]")
        + rows % ("transposed", "q[vi, vj] = t[vj, vi]")
        + rows % ("evict", "r[vi, vj] = q[vi, vj]")
        + rows % ("store", "y[vi, vj] = r[vi, vj]")
    )


#: A program for each way to use a type, "float32" standing for it, what it computes, and whether
#: it is emitted: never, always, or for integers of which float32 has all.
Case = tuple[str, Callable[[np.ndarray], Any], str]
CASES: dict[str, Case] = {
    "copied": (COPY, lambda x: x, "always"),
    "by GpSimd": (COPY.replace('"vector"', '"gpsimd"'), lambda x: x, "always"),
    "by the scalar engine": (COPY.replace('"vector"', '"scalar"'), lambda x: x, "narrow"),
    "transposed": (_transposed(), lambda x: x.T, "always"),
    "a range": (
        _value(f"T.Select(vj < 7, t[vi, vj], T.float32({BIG}))"),
        lambda x: np.where(np.arange(64) < 7, x, x.dtype.type(_number(x.dtype.name))),
        "always",
    ),
    "a mask": (
        _value("T.Select(vj <= vi, t[vi, vj], T.float32(0))"),
        np.tril,
        "narrow",
    ),
    "by data": (_value("T.Select(t[vi, vj] > T.float32(1), t[vi, vj], t[vi, vj])"), abs, "never"),
    "doubled": (DOUBLE, lambda x: x * 2, "never"),
    "rounded": (_value('T.Cast("float32", T.Cast("float16", t[vi, vj]))'), abs, "never"),
    "sums": (SUM, lambda x: x.sum(1), "never"),
    "maxima": (SUM.replace("r[vi] + t[vi, vj]", "T.max(r[vi], t[vi, vj])"), abs, "never"),
    "product": (PRODUCT, lambda x: x.T @ x, "never"),
}


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "uint8"])
@pytest.mark.parametrize("name", CASES)
def test_integers_are_exact_or_refused(name: str, dtype: str) -> None:
    program, expected, when = CASES[name]
    text = program.replace("float32", dtype)
    limits = np.iinfo(dtype)
    func = tvm.script.from_source(text.replace(str(BIG), str(_number(dtype))))
    if when == "never" or (when == "narrow" and limits.bits == 32):
        with pytest.raises(EmitError, match=f"{dtype}|not a sum of products"):
            emit(func)
        return
    kernel = emit(func)
    kernel.check("trn2")
    ((shape, own), *_) = kernel.inputs.values()
    x = np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    assert own == dtype
    np.testing.assert_array_equal(kernel(x), expected(x))


@pytest.mark.parametrize(
    ("one", "other"), [("int32", "float32"), ("float32", "int32"), ("int32", "int16")]
)
def test_conversions_are_refused(one: str, other: str) -> None:
    text = _value('T.Cast("float32", t[vi, vj])')
    for name in ("x: T.Buffer", "t = T.sblock_alloc_buffer"):
        text = text.replace(f'{name}((64, 64), "float32"', f'{name}((64, 64), "{one}?"')
    func = tvm.script.from_source(text.replace('"float32"', f'"{other}"').replace("?", ""))
    with pytest.raises(EmitError, match="block 'double': computes with int"):
        emit(func)


def test_trn1_transposes_no_integers_of_32_bits() -> None:
    from fuse_epilogue.neuron import CheckError

    for dtype, right in (("int32", False), ("int16", True), ("float32", True)):
        kernel = emit(tvm.script.from_source(_transposed().replace("float32", dtype)))
        if right:
            kernel.check("trn1")
        else:
            with pytest.raises(CheckError, match="does not keep all integers of 32 bits"):
                kernel.check("trn1")


@pytest.mark.parametrize(("number", "whole"), [(2.75, 2), (-2.75, -2), (3e9, None)])
def test_a_constant_that_becomes_an_integer_is_cut_off(number: float, whole: int | None) -> None:
    text = f't[vi, vj] * T.Cast("float32", T.Cast("int32", T.float32({number})))'
    func = tvm.script.from_source(DOUBLE.replace("t[vi, vj] * T.float32(2)", text))
    if whole is None:
        with pytest.raises(EmitError, match="int32 does not hold"):
            emit(func)
        return
    x = np.arange(64 * 64, dtype="float32").reshape(64, 64)
    np.testing.assert_array_equal(emit(func)(x), x * whole)


# ---- Integers and floats in one expression -------------------------------------------------------

#: What is computed of an element `i`, the types of x and y, and numpy's result.
Mixed = tuple[str, str, str, Callable[[np.ndarray], Any]]
MIXED: dict[str, Mixed] = {
    "small ones": (
        'T.Cast("float32", {i}) * T.float32(0.5)',
        "int8",
        "float32",
        lambda x: x * np.float32(0.5),
    ),
    "cut off": (
        'T.Cast("float32", T.max(T.min({i}, 16777216), -16777216))',
        "int32",
        "float32",
        lambda x: np.clip(x, -(2**24), 2**24),
    ),
    "remainders": (
        'T.Cast("float32", T.floormod({i}, 1999))',
        "int32",
        "float32",
        lambda x: x % 1999,
    ),
    "compared": (
        "T.Select({i} == t[vi, 0], T.float32(3), T.float32(4))",
        "int32",
        "float32",
        lambda x: np.where(x == x[:, :1], 3, 4),
    ),
    "to the nearest": (
        'T.Cast("int8", T.nearbyint(T.max(T.min({i}, T.float32(100)), T.float32(-100))))',
        "float32",
        "int8",
        lambda x: np.rint(np.clip(x, -100, 100)).astype("int8"),
    ),
}
#: A change that leaves no exact instruction, and the reason of the refusal.
TWINS = {
    "small ones": ('"float32", {i}) * T.float32(0.5)', '"int32", {i})', "computes with int"),
    "cut off": ("16777216)", "16777217)", "computes with int32"),
    "remainders": ("1999", "4999", "no instruction computes"),
    "compared": ("t[vi, 0]", "7", "compares int32 with int32"),
    "to the nearest": ("T.nearbyint", "", "computes with int8"),
}


def mixed(value: str, one: str, other: str) -> Any:
    text = _value(value.replace("{i}", "t[vi, vj]"))
    types = {"x: T.Buffer": one, "t = T.sblock_alloc_buffer": one}
    types |= {"y: T.Buffer": other, "r = T.sblock_alloc_buffer": other}
    for name, dtype in types.items():
        text = text.replace(f'{name}((64, 64), "float32"', f'{name}((64, 64), "{dtype}"')
    return tvm.script.from_source(text.replace('T.sblock_attr({"nki_engine": "vector"})', "pass"))


@pytest.mark.parametrize("name", MIXED)
def test_integers_and_floats_in_one_expression(name: str) -> None:
    value, one, other, expected = MIXED[name]
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(64, 64)) * 60).astype(one)
    if one == "int32":
        x = rng.integers(0, 2**31 - 1, (64, 64)).astype(one)
        x[:8, 32:] = x[:8, :1]
        x[9, :2] = 2**30, 2**30 + 1  # the same float32
    kernel = emit(mixed(value, one, other))
    kernel.check("trn2")
    np.testing.assert_array_equal(kernel(x), expected(x))
    before, after, reason = TWINS[name]
    with pytest.raises(EmitError, match=reason):
        emit(mixed(value.replace(before, after), one, other))
