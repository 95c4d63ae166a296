"""Which operands behind a condition are absorbed: those that are defined without it, and no others.

Each row is an operand that is not, and a twin that differs in the one thing that matters.
"""

from __future__ import annotations

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule

pytestmark = pytest.mark.cpp

PROGRAM = """
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((4, 8, 16), "{dtype}"), C: T.Buffer((16,), "int32"), G: T.Buffer((16,), "{dtype}"),
    n: T.int32, u: T.uint32, D: T.Buffer((4, 16), "{dtype}"),
):
    temp = T.sblock_alloc_buffer((4, 16), "{dtype}")
{before}
    for i, j, k in T.grid(4, 16, 8):
        with T.sblock("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.{dtype}(0)
            temp[vi, vj] = temp[vi, vj] + {term}
{between}
    for i, j in T.grid(4, 16):
        with T.sblock("epilogue"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = {value}
"""

# What may be undefined where the condition does not hold, and what is not.
OPERANDS = {
    "an index": ("G[C[vj]]", "G[T.max(0, T.min(C[vj], 15))]"),
    "the end of a buffer": ("G[vj + 1]", "G[15 - vj]"),
    "the sign of a remainder": ("G[T.truncmod(C[vj], 16)]", "G[T.floormod(C[vj], 16)]"),
    "a divisor": (
        'T.Cast("float32", T.truncdiv(1000, C[vj]))',
        'T.Cast("float32", T.truncdiv(1000, T.max(C[vj], 1)))',
    ),
    "the lowest number by -1": (
        'T.Cast("float32", T.truncdiv(C[vj], T.min(n, -1)))',
        'T.Cast("float32", T.truncdiv(T.max(C[vj], 0), T.min(n, -1)))',
    ),
    "an overflow": (
        'T.Cast("float32", C[vj] + C[vj])',
        'T.Cast("float32", T.Cast("int64", C[vj]) + T.Cast("int64", C[vj]))',
    ),
    "an overflow in an index": ("G[T.min(T.max(vj + n, 0), 15)]", "G[T.min(T.max(n, 0), 15)]"),
    # As whole numbers both are inside.
    "an overflow that is divided": (
        "G[T.floordiv(vj * 178956971, 178956972)]",
        "G[T.floordiv(vj * 134217727, 134217728)]",
    ),
    "an overflow that is compared": (
        "G[T.min(vj * 178956971, 15)]",
        "G[T.min(vj * 134217728, 15)]",
    ),
    # The overflow beside the division must not hide it.
    "a divisor in an index": (
        "G[T.floormod(n * n + T.truncdiv(1000, n), 16)]",
        "G[T.floormod(T.truncdiv(1000, T.max(n, 1)), 16)]",
    ),
    "an amount": ('T.Cast("float32", C[vj] << n)', 'T.Cast("float32", C[vj] << (n & 31))'),
    "a number that is not an integer": (
        'T.Cast("float32", T.Cast("int32", G[vj]))',
        'T.Cast("float32", T.Cast("int32", C[vj]))',
    ),
    "what a condition of its own leaves open": (
        "T.if_then_else(C[vj] >= 0, G[C[vj]], T.float32(0))",
        "T.if_then_else(C[vj] >= 0 and C[vj] < 16, G[C[vj]], T.float32(0))",
    ),
}


def absorbed(
    value: str,
    dtype: str = "float32",
    term: str = "A[vi, vk, vj]",
    before: str = "",
    between: str = "",
) -> str:
    """Return what is absorbed of an epilogue."""
    text = PROGRAM.format(dtype=dtype, value=value, term=term, before=before, between=between)
    (step,) = Schedule(tvm.script.from_source(text)).fuse_reduction_epilogue("sum").steps
    return step.absorbed


@pytest.mark.parametrize("partial, total", OPERANDS.values(), ids=OPERANDS)
def test_only_what_is_defined_leaves_its_condition(partial: str, total: str) -> None:
    guarded = "T.if_then_else(n > 3, temp[vi, vj] + {}, T.float32(0))"
    assert not absorbed(guarded.format(partial))
    assert absorbed(guarded.format(total))
    # Without a condition, the program evaluates it everywhere itself.
    assert absorbed(f"temp[vi, vj] + {partial}")


def test_assumptions_count() -> None:
    quotient = 'T.Cast("float32", T.truncdiv(9, n))'
    value = f"T.if_then_else(C[vj] > 0, temp[vi, vj] + {quotient}, T.float32(0))"
    assert not absorbed(value)
    assert not absorbed(value, before="    T.assume(n >= 0)")
    assert absorbed(value, before="    T.assume(n > 0)")


def test_literals_of_the_terms_count_for_overflow() -> None:
    """LLVM sees the range of such a sum: with one literal more it may pass the end on its way."""
    assert absorbed("temp[vi, vj] + -1100", "int32") == "-1100"
    assert not absorbed("temp[vi, vj] + -1100", "int32", term="(A[vi, vk, vj] - 2147482648)")


def test_an_assumption_behind_an_assertion_comes_too_late() -> None:
    """Fused, the quotient would be computed before the program ends there."""
    value = 'temp[vi, vj] + T.Cast("float32", T.truncdiv(9, n))'
    assertion = "    assert n > 0, 'n'"
    with pytest.raises(s_tir.ScheduleError, match="may end the program before"):
        absorbed(value, between=f"{assertion}\n    T.evaluate(T.assume(n > 0))")
    assert absorbed(value, before="    T.assume(n > 0)", between=assertion)


def test_an_analyzer_that_has_failed_is_not_asked_again() -> None:
    """TVM's fails at an unsigned number below zero, and takes half of it for 0 from then on."""
    failing, half = "G[T.Select(T.uint32(0) > u, 1, 2)]", 'G[T.Cast("int32", u // T.uint32(2))]'
    assert "u //" in absorbed(f"temp[vi, vj] + ({failing} + {half})")
