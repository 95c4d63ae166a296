"""What the checkers make of where elements are: strides, offsets, views, and types of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.ir import TensorLoad, prim
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import from_source
from tvm.script import tirx as T
from tvm.tirx import BufferLoad, PrimFunc

from certified import Certified, mapped, start, value
from fuse_epilogue.verify import (
    CertificateError,
    NotEquivalent,
    UnsupportedError,
    check,
    equivalent,
)
from mutation import without

SUM = """
    temp = T.sblock_alloc_buffer((4,), "{type}")
    for i, k in T.grid(4, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            {views}
            with T.init():
                temp[vi] = T.Cast("{type}", 0)
            temp[vi] = temp[vi] + {term}
    for i in range(4):
        with T.sblock("after"):
            vi = T.axis.spatial(4, i)
            D[vi] = {value}
"""
PLAIN = 'A: T.Buffer((4, 8), "int32"), C: T.Buffer((4,), "int32"), D: T.Buffer((4,), "int32")'


def program(
    parameters: str = PLAIN,
    before: str = "",
    *,
    term: str = "A[vi, vk]",
    views: str = "T.reads(A[vi, 0:8])",
    value: str = "temp[vi] + C[vi]",
    type: str = "int32",
) -> PrimFunc:
    """Sums of rows, and what comes after."""
    body = SUM.format(term=term, views=views, value=value, type=type)
    return from_source(f"@T.prim_func(s_tir=True)\ndef main({parameters}):{before}{body}")


def fused(before: PrimFunc, *off: str, **options: Any) -> Certified:
    """The fusion, without some of the rewriter's decisions."""
    sch = Schedule(before, debug_mask="all")
    with without(*off):
        certificate = sch.fuse_reduction_epilogue("sum", **options).certificate
    return Certified(before, sch.mod["main"], certificate)


def checked(given: Certified) -> None:
    check(given.before, given.after, given.certificate)


# ---- Strides and offsets that are variables ------------------------------------------------------

NAMED = 'A: T.Buffer((4, 8), "int32"), c: T.handle, D: T.Buffer((4,), "int32")'
#: A variable of the place of C, by what it is.
PLACES = {
    "stride": """
    s = T.int32()
    C = T.match_buffer(c, (4,), "int32", strides=(s,))""",
    "offset": """
    s = T.int32()
    C = T.match_buffer(c, (4,), "int32", elem_offset=s, offset_factor=1)""",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_stride_or_an_offset_may_be_a_variable(place: str) -> None:
    """It is a number like others: it may also be computed with, and may be 0."""
    given = fused(program(NAMED, PLACES[place], value="temp[vi] + C[vi] * s"))
    checked(given)
    with pytest.raises(CertificateError, match="init"):
        checked(given.storing(start("sum", lambda stored: stored + 1)))
    guarded = "T.if_then_else(s != 0, temp[vi] + T.truncdiv(100, s), 0)"
    given = fused(program(NAMED, PLACES[place], value=guarded))
    checked(given)
    with pytest.raises(CertificateError, match="value"):
        checked(given.storing(value("after", lambda stored: stored.args[1])))


# ---- Views of what a reduction reads -------------------------------------------------------------

#: Views, what is read of them, and the elements that are read.
VIEWS = {
    "element": ('a = T.match_buffer(A[vi, vk], (), "int32", offset_factor=1)', "a[()]"),
    "row": ('a = T.match_buffer(A[vi, 0:8], (8,), "int32", offset_factor=1)', "a[vk]"),
    "columns": ('a = T.match_buffer(A[vi, 2:8], (6,), "int32", offset_factor=1)', "a[vk % 6]"),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_reduction_may_read_by_views(kind: str) -> None:
    view, term = VIEWS[kind]
    given = fused(program(views=f"T.reads(A[vi, 0:8])\n            {view}", term=term))
    checked(given)
    assert equivalent(given.before, given.after).proved

    def other(load: Any) -> Any:
        return BufferLoad(load.source, [*load.indices[:-1], (load.indices[-1] + 1) % 6])

    if kind != "element":
        moved = mapped(TensorLoad, other, lambda load: load.source.name == "a")
        with pytest.raises(CertificateError, match="distributed"):
            checked(given.storing(moved))


def test_what_is_absorbed_beside_a_view_is_declared() -> None:
    """The block declares more than it computes, and another element of what it declares is new."""
    views = (
        "T.reads(A[vi, vk], C[0:4])\n            "
        'c = T.match_buffer(C[0:4], (4,), "int32", offset_factor=1)'
    )
    checked(fused(program(views=views, term="A[vi, vk] * c[3 - vi]", value="temp[vi] + A[vi, 0]")))


def test_a_view_is_not_known_by_its_strides() -> None:
    views = (
        "T.reads(A[0:4, vk])\n            s = T.int32()\n            "
        'a = T.match_buffer(A[0:4, vk], (4, 1), "int32", offset_factor=1, strides=(s, 1))'
    )
    checked(fused(program(views=views, term="a[vi, 0]")))
    with pytest.raises(CertificateError, match="reduction: .* blocks or buffers inside"):
        checked(fused(program(views=views, term="a[vi, 0] * s")))


# ---- Types that memory holds, and that are not computed with -------------------------------------


@pytest.mark.parametrize("type", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_what_is_converted_may_be_narrow(type: str) -> None:
    wide = "int32" if "int" in type else "float32"
    parameters = PLAIN.replace("int32", wide)
    narrow = parameters.replace(f'(4, 8), "{wide}"', f'(4, 8), "{type}"')
    term = f'T.Cast("{wide}", A[vi, vk])'
    given = fused(program(narrow, term=term, type=wide))
    checked(given)
    with pytest.raises(CertificateError, match="init"):
        checked(given.storing(start("sum", lambda stored: stored + stored)))
    narrow = parameters.replace(f'D: T.Buffer((4,), "{wide}"', f'D: T.Buffer((4,), "{type}"')
    given = fused(program(narrow, value=f'T.Cast("{type}", temp[vi] + C[vi])', type=wide))
    checked(given)
    with pytest.raises(CertificateError, match="value"):
        checked(given.storing(value("after", lambda v: prim.Cast(type, v.value + v.value))))
    with pytest.raises(UnsupportedError, match=f"of type {type} cannot be evaluated"):
        equivalent(given.before, given.after)


# ---- Comparisons on data -------------------------------------------------------------------------

STORED = 'A: T.Buffer((4, 8), "{type}"), C: T.Buffer((4,), "{type}"), d: T.handle'
#: Layouts of the result.
LAYOUTS = {
    "apart": "strides=(3,)",
    "named": "strides=(s,)",
    "named offset": "elem_offset=s, offset_factor=1",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", ["int32", "bfloat16"])
def test_arrays_are_as_they_are_declared(layout: str, type: str) -> None:
    declared = f'\n    s = T.int32()\n    D = T.match_buffer(d, (4,), "{type}", {LAYOUTS[layout]})'
    before = program(STORED.format(type=type), declared, type=type)
    report = equivalent(before, before)
    assert report.proved
    # NumPy passes no bfloat16 with strides.
    assert ("llvm" in report.oracles) is (type != "bfloat16" or "strides" not in declared)
    with pytest.raises(NotEquivalent, match="D"):
        equivalent(before, value("after", lambda stored: stored + stored)(before))


def test_arrays_are_compared_by_their_strides() -> None:
    """Columns that are stored first, and rows that are padded; with sizes that are given."""

    @T.prim_func(s_tir=True)
    def transposed(a: T.handle, d: T.handle, s: T.int32):
        n = T.int32()
        A = T.match_buffer(a, (4, n), "int32", strides=(1, 4))
        D = T.match_buffer(d, (n, 4), "int32", strides=(s, 1))
        for i, j in T.grid(n, 4):
            with T.sblock("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = A[vj, vi] * s

    report = equivalent(transposed, transposed)
    assert report.proved and report.oracles == ("llvm", "evaluator")
    assert report.sizes == {"n": 7, "s": 5}
    assert equivalent(transposed, transposed, sizes={"s": 9}).sizes["s"] == 9
    with pytest.raises(UnsupportedError, match=r"elements of 'D' share places .* \(3, 1\)"):
        equivalent(transposed, transposed, sizes={"s": 3})


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("strides=(0,)", "the elements of 'D' share places"),
        ("strides=(-1,)", "'D' has a negative stride"),
        ("elem_offset=3", "'D' begins 3 elements after"),
    ],
)
def test_arrays_that_are_not_compared_are_named(declared: str, reason: str) -> None:
    before = f'\n    D = T.match_buffer(d, (4,), "int32", {declared})'
    func = program(STORED.format(type="int32"), before)
    with pytest.raises(UnsupportedError, match=reason):
        equivalent(func, func)


def test_allocated_elements_do_not_share_places() -> None:
    shared = program().script().replace('alloc_buffer((4,), "int32")', "X")
    shared = shared.replace("T.sblock_X", 'T.sblock_alloc_buffer((4,), "int32", strides=(0,))')
    func = from_source(shared)
    with pytest.raises(UnsupportedError, match="the elements of 'temp' share places"):
        equivalent(func, func)


# ---- Differences below 0 -------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["uint32", "uint64"])
def test_a_difference_below_zero_is_not_defined(type: str) -> None:
    """LLVM makes 0 of ``0 - x``, and the evaluator 2**32 - x: neither is a difference of two."""
    parameters = PLAIN.replace("int32", type)
    before = program(parameters, type=type, value=f"T.{type}(0) - temp[vi]")
    report = equivalent(before, before)
    assert report.proved and np.any([each.elements for each in report.data.values()])
    other = program(parameters, type=type, value=f"T.{type}(1) - temp[vi]")
    with pytest.raises(NotEquivalent):
        equivalent(before, other)


# ---- Memory with two names -----------------------------------------------------------------------

#: What a root block takes a view of, what comes between, and the value of the epilogue.
TWO_NAMES = {
    "a bias that is overwritten": ("v = {}(C[0:4], (4,))", "v[vi] = 7", "temp[vi] + C[vi]"),
    "an output that is read": ("v = {}(D[0:4], (4,))", "C[vi] = v[vi]", "temp[vi] + vi"),
    "a term that is overwritten": ("v = {}(A[0, 0:4], (4,))", "F[vi] = v[vi]", "temp[vi] + vi"),
}


def with_view(what: str) -> PrimFunc:
    view, between, value = TWO_NAMES[what]
    view = view.format("T.match_buffer").replace("(4,))", '(4,), "int32", offset_factor=1)')
    body = SUM.format(term="A[vi, vk]", views="T.reads(A[vi, 0:8])", value=value, type="int32")
    sums, after = body.split("    for i in range(4):")
    middle = f"""    for i in range(4):
        with T.sblock("between"):
            vi = T.axis.spatial(4, i)
            {between}
"""
    lines = f"{sums}{middle}    for i in range(4):{after}".replace("\n", "\n    ")
    root = f'with T.sblock("root"):\n        T.reads(A[0:4, 0:8], C[0:4], D[0:4])\n        {view}'
    parameters = PLAIN + ', F: T.Buffer((4,), "int32")'
    return from_source(f"@T.prim_func(s_tir=True)\ndef main({parameters}):\n    {root}{lines}")


@pytest.mark.parametrize("what", TWO_NAMES)
def test_memory_with_two_names(what: str) -> None:
    before = with_view(what)
    if "term" in what:
        checked(fused(before))  # only read, by both names
        return
    with pytest.raises(ScheduleError, match=r"\[opaque-access\]"):
        fused(before)
    with pytest.raises(CertificateError, match="order: .* two names"):
        checked(fused(before, "opaque-access"))


@T.prim_func(s_tir=True)
def over_its_keys(X: T.Buffer((4, 16), "float32")):
    with T.sblock("root"):
        T.reads(X[0:4, 0:16])
        T.writes(X[0:4, 0:1])
        D = T.match_buffer(X[0:4, 0:1], (4, 1), "float32", offset_factor=1, strides=(16, 1))
        top = T.sblock_alloc_buffer((4,), "float32")
        for i, k in T.grid(4, 16):
            with T.sblock("top"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], X[vi, vk])
        for i, k in T.grid(4, 16):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    D[vi, 0] = T.float32(0)
                D[vi, 0] += T.exp(X[vi, vk] - top[vi])


def test_a_cascade_over_memory_with_two_names() -> None:
    with pytest.raises(ScheduleError, match=r"\[opaque-access\]"):
        Schedule(over_its_keys).fuse_cascaded_reductions("sum")
    sch = Schedule(over_its_keys)
    with without("opaque-access"):
        certificate = sch.fuse_cascaded_reductions("sum").certificate
    with pytest.raises(CertificateError, match="order"):
        check(over_its_keys, sch.mod["main"], certificate)
