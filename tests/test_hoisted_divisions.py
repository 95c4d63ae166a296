"""Divisions behind conditions, where TVM copies the loops of the reduction after the fusion.

What a loop repeats without loads and calls, TVM computes once, in front of the conditions around
it. A loop that is unrolled or partitioned repeats all that is in it, and consumers of one reduction
repeat what they have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import Schedule

import cuda_on_cpu
from fuse_epilogue import verify
from fuse_epilogue.rewrites.branches import with_branches
from generated.child import Job, outcomes
from mutation import without
from oracles import compile_together
from tiers import one_in

pytestmark = pytest.mark.cpp

ROWS, TERMS = 4, 8


def program(values: tuple[str, ...], dtype: str = "int32", where: str = "m != 0") -> Any:
    """Sums of rows, and consumers, each of a value under a condition."""
    outputs = "DEF"[: len(values)]
    text = f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer(({ROWS}, {TERMS}), "{dtype}"), m: T.{dtype}, x: T.{dtype},
         {", ".join(f'{out}: T.Buffer(({ROWS},), "{dtype}")' for out in outputs)}):
    temp = T.sblock_alloc_buffer(({ROWS},), "{dtype}")
    for i, k in T.grid({ROWS}, {TERMS}):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.{dtype}(0)
            temp[vi] += A[vi, vk]
"""
    for out, value in zip(outputs, values, strict=True):
        text += f"""
    for i in range({ROWS}):
        with T.sblock("{out}"):
            vi = T.axis.spatial({ROWS}, i)
            {out}[vi] = T.if_then_else({where}, {value}, T.{dtype}(7))
"""
    return tvm.script.from_source(text)


def loop(sch: Schedule) -> Any:
    return sch.get_loops("sum")[0]


def annotate(sch: Schedule, *names: str) -> None:
    for name in names:
        sch.annotate(loop(sch), name, 512 if "step" in name else 1)


WAYS: dict[str, Callable[[Schedule], Any]] = {
    "unroll": lambda sch: sch.unroll(loop(sch)),
    "pragmas": lambda sch: annotate(sch, "pragma_auto_unroll_max_step", "pragma_unroll_explicit"),
    "hint": lambda sch: sch.annotate(
        sch.split(loop(sch), [None, 3])[0], "pragma_loop_partition_hint", 1
    ),
    "split and unroll": lambda sch: sch.unroll(sch.split(loop(sch), [None, 3])[1]),
    "decompose and unroll": lambda sch: (
        sch.decompose_reduction("sum", sch.get_loops("sum")[1]),
        sch.unroll(sch.get_loops("sum_update")[0]),
    ),
}


def fused(func: Any, numerics: str = "reassociate") -> tuple[Schedule, Any]:
    sch = Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue("sum", numerics=numerics)
    assert len(report.steps) == len(func.params) - 3, str(report)
    return sch, report


def results(func: Any, after: Any, numbers: tuple[int, int]) -> list[Any]:
    """Return what two functions, compiled, compute in processes that may die of it."""
    built = compile_together({"before": func, "after": after})
    dtype = str(func.params[0].ty.dtype)
    data = np.arange(ROWS * TERMS).reshape(ROWS, TERMS).astype(dtype)

    def job(name: str) -> Job:
        outputs = [tvm.runtime.tensor(np.zeros(ROWS, dtype)) for _ in func.params[3:]]
        given = (tvm.runtime.tensor(data), *numbers, *outputs)
        return lambda _: built[name](*given) or str([each.numpy().tolist() for each in outputs])

    return [each.crash or each.found for each in outcomes([job("before"), job("after")])]


def same(func: Any, after: Any, numbers: tuple[int, int]) -> bool:
    alone, together = results(func, after, numbers)
    assert alone.startswith("[["), alone
    return bool(alone == together)


QUOTIENT = "temp[vi] + T.truncdiv(x, m)"
# By a name: values, type and condition.
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "divisor": ((QUOTIENT,), "int32", "m != 0"),
    "select": (("T.Select(m != 0, temp[vi] + T.truncdiv(x, m), 1)",), "int32", "x != 12345"),
    "condition": (("temp[vi]",), "int32", "T.if_then_else(m != 0, T.truncmod(x, m), 1) != 0"),
    "remainder": (("temp[vi] + T.truncmod(x, m)",), "int32", "m != 0"),
    "floor": (("T.max(temp[vi], T.floordiv(x, m))",), "int64", "m > 0"),
    "floor remainder": (("T.max(temp[vi], T.floormod(x, m))",), "int16", "m > 0"),
    "bytes": (("T.min(temp[vi], T.truncdiv(x, m))",), "int8", "m != T.int8(0)"),
    "nested": (("temp[vi] + T.truncdiv(x, T.truncdiv(6, m))",), "int32", "m > 0 and m < 7"),
    "its own guard": (
        ("temp[vi] + T.if_then_else(m != 0, T.truncdiv(x, m), 1)",), "int32", "x != 12345",
    ),
    "two consumers": (
        ("temp[vi] + T.truncdiv(x, m + vi)", "temp[vi] - T.truncdiv(x, m + vi)"), "int32", "m != 0",
    ),
    "axis": (("temp[vi] + T.truncdiv(x, vi - 2)",), "int32", "vi != 2"),
    "twice by an axis": (
        ("temp[vi] + T.truncdiv(x, 3 - vi)", "temp[vi] - T.truncdiv(x, 3 - vi)"), "int32", "vi < 3",
    ),
}  # fmt: skip
NUMBERS = [(0, 5), (3, 100), (0, 0)]


@pytest.mark.parametrize("each", one_in(7, itertools.product(PROGRAMS, ("reassociate", "exact"))))
def test_copied_loops_keep_guards(each: tuple[str, Any]) -> None:
    name, numerics = each
    func = program(*PROGRAMS[name])
    sch, report = fused(func, numerics)
    verify.check(func, sch.mod["main"], report.certificate)
    for numbers in NUMBERS:
        assert same(func, sch.mod["main"], numbers)
    for way in WAYS.values():
        copied = sch.copy()
        way(copied)
        for numbers in NUMBERS[:2]:
            assert same(func, copied.mod["main"], numbers)


@pytest.mark.parametrize("way", ["unroll", "pragmas", "hint", "split and unroll"])
def test_they_are_lost_where_divisions_are_not_pinned(way: str) -> None:
    func = program((QUOTIENT,))
    with without("pinned-division"):
        sch, _ = fused(func)
    assert same(func, sch.mod["main"], NUMBERS[0])
    WAYS[way](sch)
    assert results(func, sch.mod["main"], NUMBERS[0])[1] == "SIGFPE"
    assert same(func, sch.mod["main"], NUMBERS[1])


def test_a_division_whose_loop_gets_a_predicate() -> None:
    """Past the last row the divisor is 0, and two consumers divide by it."""
    values = tuple(f"temp[vi] {sign} T.truncdiv(x, {ROWS} - vi)" for sign in "+-")
    func = program(values, where="x != 12345")

    sch, _ = fused(func, "exact")
    sch.split(loop(sch), [None, 3])
    assert same(func, sch.mod["main"], (0, 100))


def test_the_quotient_that_overflows_stays_behind_its_condition() -> None:
    func = program((QUOTIENT,), where="m > 0")
    sch, _ = fused(func)
    WAYS["unroll"](sch)
    lowest = (-1, -(1 << 31))
    assert same(func, sch.mod["main"], lowest)
    with without("pinned-division"):
        sch, _ = fused(func)
    WAYS["unroll"](sch)
    assert results(func, sch.mod["main"], lowest)[1] == "SIGFPE"


def test_what_cannot_fault_is_left_as_it_is() -> None:
    """Divisors that are literals, or read from memory, or known to be positive."""
    values = ("T.truncdiv(temp[vi], m)", "temp[vi] + T.truncdiv(x, 3)", "temp[vi] + x // (vi + 1)")
    for value in values[:2]:
        sch, _ = fused(program((value,)), "exact")
        assert "reinterpret" not in sch.mod.script()
    # An axis is what its loop makes it, which may be more than its domain.
    sch, _ = fused(program(values[2:]), "exact")
    assert "reinterpret" in sch.mod.script()


def test_scripts_and_certificates_of_it_are_read_back() -> None:
    func = program((QUOTIENT,))
    sch, report = fused(func)
    after = sch.mod["main"]
    again = tvm.script.from_source(after.script())
    assert tvm_ffi.structural_equal(after, again, map_free_vars=True)
    assert verify.equivalent(func, after, numerics="exact").proved
    with pytest.raises(verify.NotEquivalent):
        verify.equivalent(program((QUOTIENT.replace("x, m", "x + 1, m"),)), after)
    replayed = Schedule(func)
    s_tir.schedule.trace.Trace.apply_json_to_schedule(sch.trace.as_json(), replayed)
    assert tvm_ffi.structural_equal(replayed.mod["main"], after)


# The twin of all of them: a certificate for a divisor that is another one within its calls.
@pytest.mark.parametrize("wrong", ["m + 1", "m ^ 1", "x", "T.int32(1)"])
def test_a_pinned_divisor_that_is_another_one_is_rejected(wrong: str) -> None:
    func = program((QUOTIENT,))
    sch, report = fused(func)
    pinned = 'T.reinterpret("int32", T.reinterpret("uint32", m ^ 0))'
    text = sch.mod["main"].script()
    assert pinned in text
    after = tvm.script.from_source(text.replace(pinned, pinned.replace(", m ^ 0)", f", {wrong})")))
    with pytest.raises(verify.CertificateError):
        verify.check(func, after, report.certificate)


# ---- Cascades ------------------------------------------------------------------------------------


def softmax(dividend: str) -> Any:
    """A maximum of rows and a sum of exponentials, of a quotient where the divisor is not 0."""
    quotient = f'T.Cast("float32", T.truncdiv(60, {dividend} - n))'
    term = f"T.if_then_else({dividend} != n, A[vi, vj] + {quotient}, T.float32(0))"
    return tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 8), "float32"), n: T.int32, S: T.Buffer((4,), "float32")):
    M = T.sblock_alloc_buffer((4,), "float32")
    for i, j in T.grid(4, 8):
        with T.sblock("largest"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                M[vi] = T.min_value("float32")
            M[vi] = T.max(M[vi], {term})
    for i, j in T.grid(4, 8):
        with T.sblock("total"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + T.exp({term} - M[vi])
""")


def softmax_ends(func: Any, n: int) -> str:
    """Return what a softmax, compiled, computes in a process that may die of it."""
    built = compile_together({"main": func})["main"]
    data = np.arange(32).reshape(4, 8).astype("float32") % 5

    def job(_: Any) -> str:
        total = tvm.runtime.tensor(np.zeros(4, "float32"))
        built(tvm.runtime.tensor(data), n, total)
        return str(total.numpy().round(3).tolist())

    (found,) = outcomes([job])
    return found.crash or found.found


@pytest.mark.parametrize("factor", [1, 8])
@pytest.mark.parametrize("axis", ["vi", "vj"])
def test_reductions_of_a_cascade_keep_guards(axis: str, factor: int) -> None:
    func = softmax(axis)

    def rolled() -> tuple[Any, Any]:
        sch = Schedule(func, debug_mask="all")
        report = sch.fuse_cascaded_reductions("largest", factor=factor)
        before = sch.mod["main"]
        for name in ("largest_next", "total_next"):
            sch.unroll(sch.get_loops(name)[-1])
        verify.check(func, before, report.certificate)
        return before, sch.mod["main"]

    for after in rolled():
        for n in (3, 100):
            found = softmax_ends(func, n)
            assert found.startswith("[") and softmax_ends(after, n) == found
    with without("pinned-division"):
        _, unrolled = rolled()
    assert softmax_ends(unrolled, 3) == "SIGFPE"


def by_columns() -> tirx.PrimFunc:
    """Sums, and a quotient by a number of the row."""
    return tvm.script.from_source("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 2, 8), "int32"), x: T.int32, D: T.Buffer((4, 2), "int32")):
    temp = T.sblock_alloc_buffer((4, 2), "int32")
    for i, j, k in T.grid(4, 2, 8):
        with T.sblock("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += A[vi, vj, vk]
    for i, j in T.grid(4, 2):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.if_then_else(vi != 2, temp[vi, vj] + T.truncdiv(x, vi - 2), 7)
""")


@pytest.mark.parametrize("fuse", [False, True])
def test_a_divisor_that_becomes_a_literal_is_valid_cuda(fuse: bool) -> None:
    """By the pass or, for what is not fused, by the schedules; once the loop is unrolled."""
    func = by_columns() if fuse else with_branches(by_columns())
    sch = Schedule(func)
    if fuse:
        sch.fuse_reduction_epilogue("sum")
    for name in ("sum",) if fuse else ("sum", "D"):
        i, j, *_ = sch.get_loops(name)
        sch.reorder(j, i)
        sch.bind(j, "threadIdx.x")
        sch.unroll(i)
        sch.annotate(i, "pragma_unroll_explicit", 1)
    sch.set_scope("sum", 0, "local")
    data, found = np.arange(64, dtype="int32").reshape(4, 2, 8), np.zeros((4, 2), "int32")
    cuda_on_cpu.build(sch.mod)(data, 600, found)
    quotients = np.array([[-300], [-600], [0], [600]])
    assert found.tolist() == np.where(quotients, data.sum(-1) + quotients, 7).tolist()


PADDED = "T.if_then_else(vj >= 1, A[vi, vj - 1], 0)"


@pytest.mark.parametrize("divisor", [PADDED, PADDED.replace("T.if_then_else", "T.Select")])
def test_a_divisor_that_is_padding_in_an_unrolled_loop(divisor: str) -> None:
    """TVM compiles no division by the literal 0, also where nothing computes it."""
    func = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 8), "int32"), D: T.Buffer((4, 8), "int32")):
    for i, j in T.grid(4, 8):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.if_then_else({divisor} != 0, T.truncdiv(12, {divisor}), 7)
""")

    def unrolled(func: tirx.PrimFunc) -> Any:
        sch = Schedule(func)
        sch.unroll(sch.get_loops("D")[1])
        return compile_together({"main": sch.mod["main"]})["main"]

    with pytest.raises(tvm.error.InternalError, match="Divide by zero"):
        unrolled(func)
    data = np.arange(32, dtype="int32").reshape(4, 8) % 5
    padded = np.pad(data, ((0, 0), (1, 0)))[:, :-1]
    found = tvm.runtime.tensor(np.zeros((4, 8), "int32"))
    unrolled(with_branches(func))(tvm.runtime.tensor(data), found)
    assert found.numpy().tolist() == np.where(padded, 12 // np.maximum(padded, 1), 7).tolist()
