"""The table of the algebra, by asking the package what it does with each function of a result.

For every reduction and every function a small program is analysed, once for each type: what the
table says is what `fuse_epilogue.analyze` reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm

import fuse_epilogue

from .rst import code, page, table, title

FLOATS, NARROW, SIGNED, UNSIGNED = "float32", "int8", "int32", "uint32"
NUMBERS = (FLOATS, NARROW, SIGNED, UNSIGNED)
INTEGERS = (NARROW, SIGNED, UNSIGNED)
#: What the columns call the types: each stands for all that are treated as it is.
TYPES = {
    FLOATS: "floats",
    NARROW: "8, 16 bits",
    SIGNED: "signed",
    UNSIGNED: "unsigned",
    "bool": "booleans",
}

_LOG_ADD_EXP = "T.max({a}, {b}) + T.log1p(T.exp(-T.abs({a} - {b})))"
#: Reductions: the name of the monoid, its init and its combiner in TVMScript, and the types.
MONOIDS = {
    "sum": ("0", "{a} + {b}", NUMBERS),
    "product": ("1", "{a} * {b}", NUMBERS),
    "max": ("T.min_value({dtype!r})", "T.max({a}, {b})", NUMBERS),
    "min": ("T.max_value({dtype!r})", "T.min({a}, {b})", NUMBERS),
    "logical and": ("True", "T.And({a}, {b})", ("bool",)),
    "logical or": ("False", "T.Or({a}, {b})", ("bool",)),
    "bit-wise and": ("0", "T.bitwise_and({a}, {b})", INTEGERS),
    "bit-wise or": ("0", "T.bitwise_or({a}, {b})", INTEGERS),
    "bit-wise xor": ("0", "T.bitwise_xor({a}, {b})", INTEGERS),
    "logaddexp": ("T.min_value({dtype!r})", _LOG_ADD_EXP, (FLOATS,)),
}

#: Functions of the finished element x and an operand c, as the page shows them, in TVMScript, and
#: the types they are asked for.
FUNCTIONS = {
    "x + c": ("{x} + {c}", NUMBERS),
    "x - c": ("{x} - {c}", NUMBERS),
    "c - x": ("{c} - {x}", NUMBERS),
    "x * c": ("{x} * {c}", NUMBERS),
    "x / c": ("{x} / {c}", (FLOATS,)),
    "x * 3.0": ("{x} * T.float32(3)", (FLOATS,)),
    "x * -3.0": ("{x} * T.float32(-3)", (FLOATS,)),
    "x / 3.0": ("{x} / T.float32(3)", (FLOATS,)),
    "max(x, c)": ("T.max({x}, {c})", NUMBERS),
    "min(x, c)": ("T.min({x}, {c})", NUMBERS),
    "x + 3.0": ("{x} + T.float32(3)", (FLOATS,)),
    "logaddexp(x, c)": (_LOG_ADD_EXP.format(a="{x}", b="{c}"), (FLOATS,)),
    "x & c": ("T.bitwise_and({x}, {c})", INTEGERS),
    "x | c": ("T.bitwise_or({x}, {c})", INTEGERS),
    "x ^ c": ("T.bitwise_xor({x}, {c})", INTEGERS),
    "~x": ("T.bitwise_not({x})", INTEGERS),
    "x and c": ("T.And({x}, {c})", ("bool",)),
    "x or c": ("T.Or({x}, {c})", ("bool",)),
    "not x": ("T.Not({x})", ("bool",)),
}

_PROGRAM = """
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((4, 8), {dtype!r}), C: T.Buffer((4,), {dtype!r}), D: T.Buffer((4,), {dtype!r})
):
    temp = T.sblock_alloc_buffer((4,), {dtype!r})
    for i, k in T.grid(4, 8):
        with T.sblock("reduction"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.cast({init}, {dtype!r})
            temp[vi] = {update}
    for i in range(4):
        with T.sblock("epilogue"):
            vi = T.axis.spatial(4, i)
            D[vi] = {value}
"""

_INTRODUCTION = """
With *x* the finished element and *c* anything that does not depend on the reduction's own
variables. The tables were made by asking :func:`fuse_epilogue.analyze` for each function and type
when these pages were built.

**init**
    Absorbed: *c* becomes part of ``T.init``, which costs nothing.
**terms**
    Distributed: the function is applied to the init and to every term. Where that is free (a sign,
    a literal that meets a literal factor) it is done at once; with a star, *terms* \\*, only with
    ``distribute=True``.
**tail**
    It runs once on each finished element, right after the reduction.

An arrow names what the reduction becomes. Each type stands for those that are treated as it is:
floats for all of 32 bits and more, *8, 16 bits* for integers of these, *signed* and *unsigned* for
wider ones. 3.0 stands for a literal.
"""


@dataclass(frozen=True)
class Verdict:
    """The outcome for a function of a reduction's result.

    - `how`: "absorbed", "distributed" or "tail".
    - `asked`: whether it takes ``distribute=True``.
    - `monoid`: monoid of the reduction after the call.
    """

    how: str
    asked: bool
    monoid: str


def verdict(monoid: str, function: str, dtype: str) -> Verdict:
    """Ask what becomes of a function of the result of a reduction in a type."""
    for distribute in (False, True):
        report = fuse_epilogue.analyze(
            tvm.s_tir.Schedule(_program(monoid, function, dtype)),
            "reduction",
            distribute=distribute,
        )
        (step,) = report.steps
        assert report.certificate is not None
        if not step.tail:
            how = "distributed" if step.distributed and not step.absorbed else "absorbed"
            return Verdict(how, distribute, report.certificate.monoid_after)
    return Verdict("tail", False, monoid)


def verdicts() -> dict[str, dict[str, dict[str, Verdict]]]:
    """Return the verdicts by reduction, function and type."""
    return {
        monoid: {
            name: {dtype: verdict(monoid, name, dtype) for dtype in dtypes if dtype in among}
            for name, (_, among) in FUNCTIONS.items()
            if set(among) & set(dtypes)
        }
        for monoid, (_, _, dtypes) in MONOIDS.items()
    }


def pages() -> Mapping[str, str]:
    """Return the page with a table for each reduction."""
    parts = [".. _algebra-table:\n", title("What a reduction takes in"), _INTRODUCTION]
    for monoid, functions in verdicts().items():
        parts.append(title(monoid[:1].upper() + monoid[1:], 1))
        dtypes = MONOIDS[monoid][2]
        rows = []
        tails = []
        for name, by_type in functions.items():
            if all(each.how == "tail" for each in by_type.values()):
                tails.append(_unbroken(name))
                continue
            cells = [_cell(by_type[d], monoid) if d in by_type else "" for d in dtypes]
            rows.append((_unbroken(name), *cells))
        parts.append(table(("function", *(TYPES[dtype] for dtype in dtypes)), rows))
        if tails:
            parts.append(f"Always a tail: {', '.join(tails)}.\n")
    return {"algebra": page(*parts)}


def _cell(each: Verdict, monoid: str) -> str:
    if each.how == "tail":
        return "tail"
    place = "init" if each.how == "absorbed" else "terms"
    asked = "\u00a0\\*" if each.asked else ""
    turned = f" → {each.monoid}" if each.monoid != monoid else ""
    return f"{place}{asked}{turned}"


def _unbroken(function: str) -> str:
    """Return a formula as code that no line ends in."""
    return code(function.replace(" ", "\u00a0"))


def _program(monoid: str, function: str, dtype: str) -> tvm.tirx.PrimFunc:
    init, update, _ = MONOIDS[monoid]
    return tvm.script.from_source(
        _PROGRAM.format(
            dtype=dtype,
            init=init.format(dtype=dtype),
            update=update.format(a="temp[vi]", b="A[vi, vk]"),
            value=FUNCTIONS[function][0].format(x="temp[vi]", c="C[vi]"),
        )
    )
