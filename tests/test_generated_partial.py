"""Generated operands that are undefined somewhere: their data, and what runs and judges them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from generated.build import build
from generated.child import outcomes
from generated.chunk import compiled_verdict
from generated.compiled import _AFTER, _BEFORE, Sampled, disagreements, sampled
from generated.data import make_arrays
from generated.examples import program
from generated.expressions import is_lazy
from generated.fences import SIDES, Fenced
from generated.reached import demands, has_partial
from generated.spec import Epilogue, Expr, Program
from generated.strategy import random_program
from generated.verdict import (
    ACCEPTED_DIFFERENT,
    ACCEPTED_EQUAL,
    CRASHED,
    ILL_FORMED,
    judge,
)
from generated.watched import Watched
from mutation import without

X: Expr = ("x",)
C: Expr = ("elem", "int32", 1)
ZERO: Expr = ("lit", "float32", 0.0)
AXIS: Expr = ("axis", "int32")


def _int(value: int) -> Expr:
    return ("lit", "int32", value)


def guarded(operand: Expr, guard: Expr | None, choice: str = "ite", other: Expr = ZERO) -> Program:
    """A float sum to which an operand is added, if a condition holds."""
    if operand[0] != "short":
        operand = ("cast", "float32", operand)
    value: Expr = ("add", X, operand)
    expr = value if guard is None else (choice, guard, value, other)
    return program(
        Epilogue(expr=expr, dtype="float32"),
        reduction={"source": "float32", "accumulator": "float32"},
    )


QUOTIENT: Expr = ("truncdiv", _int(100), C)
# An operand with a guard, and the outcome of a run where it is evaluated all the same.
OPERANDS: dict[str, tuple[Expr, Expr, str]] = {
    "divisor": (QUOTIENT, ("ne", C, _int(0)), "divided by zero"),
    "remainder": (("floormod", _int(7), C), ("gt", C, _int(0)), "divided by zero"),
    "overflowing quotient": (
        ("truncdiv", ("elem", "int32", 2), C),
        ("and", ("ne", C, _int(-1)), ("ne", C, _int(0))),
        "",
    ),
    "index below": (("table", "int32", 2, C), ("ge", C, _int(0)), "out of bounds"),
    "index": (
        ("table", "int32", 2, C),
        ("and", ("ge", C, _int(0)), ("lt", C, _int(16))),
        "out of bounds",
    ),
    "shift": (("shl", _int(1), C), ("lt", C, _int(32)), "is shifted by"),
    "conversion": (
        ("cast", "int32", ("elem", "float32", 1)),
        ("le", ("elem", "float32", 1), ("lit", "float32", 100.0)),
        "becomes an integer",
    ),
    "product": (("mul", C, ("row", "int32", 2)), ("le", C, _int(100)), "a product is"),
    "short": (("short", "float32", 2, 2, 0), ("lt", AXIS, _int(2)), "out of bounds"),
    "short from the end": (("short", "float32", 2, 2, 1), ("ge", AXIS, _int(1)), "out of bounds"),
    "by a mask": (QUOTIENT, ("ne", ("row", "int8", 3), ("lit", "int8", 0)), "divided by zero"),
    "nowhere": (QUOTIENT, ("lt", AXIS, _int(0)), "divided by zero"),
}


@pytest.mark.parametrize("choice", ["ite", "select"])
@pytest.mark.parametrize("name", OPERANDS)
def test_an_operand_stays_behind_its_guard(name: str, choice: str) -> None:
    """Absorbed all the same, it is evaluated on what makes it undefined, and that is noticed."""
    operand, guard, what = OPERANDS[name]
    one = guarded(operand, guard, choice)
    assert has_partial(one)
    assert all(judge(one, seed=seed).kind == ACCEPTED_EQUAL for seed in range(3))
    with without("undefined-operand"):
        verdicts = [judge(one, seed=seed) for seed in range(6)]
    wrong = [verdict for verdict in verdicts if verdict.kind != ACCEPTED_EQUAL]
    assert wrong
    assert all(verdict.kind == ACCEPTED_DIFFERENT for verdict in wrong)
    assert all(what in verdict.detail for verdict in wrong)


@pytest.mark.parametrize("name", OPERANDS)
def test_without_a_guard_the_data_is_tame(name: str) -> None:
    operand, _, what = OPERANDS[name]
    one = guarded(operand, None)
    verdicts = [judge(one, seed=seed) for seed in range(3)]
    if operand[0] == "short":
        assert {verdict.kind for verdict in verdicts} == {ILL_FORMED}
    else:
        assert {verdict.kind for verdict in verdicts} == {ACCEPTED_EQUAL}


def test_data_is_wild_only_where_the_guard_is_false() -> None:
    mask: Expr = ("row", "int8", 3)
    one = guarded(QUOTIENT, ("ne", mask, ("lit", "int8", 0)))
    zeros = 0
    for seed in range(20):
        arrays = make_arrays(one, build(one), "exact", seed)
        reached = np.broadcast_to(arrays["C0_3"] != 0, arrays["C0_1"].shape)
        assert not (reached & (arrays["C0_1"] == 0)).any()
        zeros += int((arrays["C0_1"] == 0).sum())
    assert zeros > 0


def test_a_select_is_lazy_where_an_arm_loads() -> None:
    inner: Expr = ("ite", ("ne", C, _int(0)), QUOTIENT, _int(0))
    outer: Expr = ("gt", ("row", "int32", 3), _int(0))
    assert is_lazy(("select", outer, QUOTIENT, _int(0)))
    # TVM looks into the condition only of the choice in the arm.
    eager: Expr = ("select", outer, ("ite", ("ge", AXIS, _int(0)), QUOTIENT, _int(0)), _int(1))
    assert not is_lazy(eager)
    assert is_lazy(("ite", *eager[1:]))
    assert is_lazy(("select", outer, inner, _int(1)))
    paths = [len(demand.path) for demand in demands(eager, ("int32", ""))]
    assert paths == [1]
    # It is as TVM makes it: the data suits the program.
    one = guarded(("add", _int(1), eager), None)
    assert all(judge(one, seed=seed).kind == ACCEPTED_EQUAL for seed in range(3))


# ---- The evaluator -------------------------------------------------------------------------------


def _run(expr: Callable[[tirx.PrimExpr], tirx.PrimExpr], dtype: str, value: float, to: str) -> str:
    a, d = tirx.decl_buffer((1,), dtype, "A"), tirx.decl_buffer((1,), to, "D")
    body = tirx.BufferStore(d, expr(tirx.BufferLoad(a, [0])), [0])
    watched = Watched(tirx.PrimFunc([a, d], body), sums=True)
    return watched.run({"A": np.array([value], dtype), "D": np.zeros(1, to)}, {})


@pytest.mark.parametrize(
    ("expr", "dtype", "to", "fits", "does_not"),
    [
        (lambda a: a * a, "int32", "int32", 46340, 46341),
        (lambda a: a * a, "uint32", "uint32", 65535, 65536),
        (lambda a: a + a, "int64", "int64", 2**62 - 1, 2**62),
        (lambda a: tirx.Sub(tirx.IntImm("uint32", 0), a), "uint32", "uint32", 0, 1),
        (lambda a: tirx.Cast("int8", a), "float32", "int8", 127.5, 128.0),
        (lambda a: tirx.Cast("uint8", a), "float32", "uint8", -0.5, -1.0),
        (lambda a: tirx.Cast("int32", a), "float64", "int32", 5.0, np.nan),
    ],
)
def test_what_a_compiler_takes_not_to_happen_is_noted(
    expr: Callable[[tirx.PrimExpr], tirx.PrimExpr],
    dtype: str,
    to: str,
    fits: float,
    does_not: float,
) -> None:
    assert not _run(expr, dtype, fits, to)
    assert _run(expr, dtype, does_not, to)


# ---- Unreadable pages, and the child -------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (5, 1000)])
def test_fenced_arrays_hold_their_content(side: str, dtype: str, shape: tuple[int, ...]) -> None:
    content = np.ones(shape, dtype)
    fenced = Fenced(content, side)
    tensor = fenced.tensor()
    assert (str(tensor.dtype), tuple(tensor.shape)) == (dtype, shape)
    assert fenced.array.tobytes() == content.tobytes()
    address = fenced.array.ctypes.data + (fenced.array.nbytes if side == "end" else 0)
    assert address % 4096 == 0


def _reading(index: int) -> tirx.PrimFunc:
    """Read one element of three, or one beyond them."""
    a = tirx.decl_buffer((3,), "int32", "X", data_alignment=4)
    d = tirx.decl_buffer((3,), "int32", "D0", data_alignment=4)
    i = tirx.Var("i", "int32")
    store = tirx.BufferStore(d, tirx.BufferLoad(a, [i + index]), [0])
    return tirx.PrimFunc([a, d], tirx.For(i, 0, 1, tirx.ForKind.SERIAL, store))


def test_crashes_are_counted_and_the_rest_goes_on() -> None:
    arrays = {"X": np.array([5, 6, 7], "int32"), "D0": np.zeros(3, "int32")}
    one = program()
    entries = [
        Sampled(number, one, _reading(before), _reading(after), arrays)
        for number, (before, after) in enumerate([(0, 0), (0, 3), (0, -1), (3, 3), (0, 1), (2, 2)])
    ]
    found = dict(disagreements(entries))
    assert {number: verdict.kind for number, verdict in found.items()} == {
        1: CRASHED,
        2: CRASHED,
        3: ILL_FORMED,
        4: ACCEPTED_DIFFERENT,
    }
    assert found[1].detail == f"SIGSEGV {_AFTER}, an unreadable page at the end of its arrays"
    assert found[2].detail == f"SIGSEGV {_AFTER}, an unreadable page at the beginning of its arrays"
    assert found[3].detail.startswith(f"SIGSEGV {_BEFORE}")


def test_an_instruction_that_traps_is_a_crash() -> None:
    one = guarded(QUOTIENT, ("ne", C, _int(0)))
    verdict = judge(one)
    assert compiled_verdict(0, one, verdict).kind == ACCEPTED_EQUAL
    entry = sampled(0, one, verdict)
    assert entry is not None

    def unguarded(call: tvm.ir.Call) -> tvm.ir.Call:
        return call.args[1] if str(call.op.name).endswith("if_then_else") else call

    after = tvm_ffi.structural_map(entry.before, [(tvm.ir.Call, unguarded)])
    arrays = {**entry.arrays, "C0_1": np.zeros_like(entry.arrays["C0_1"])}
    ((_, found),) = disagreements([replace(entry, after=after, arrays=arrays)])
    assert found.kind == CRASHED
    assert found.detail.startswith("SIGFPE")


def test_outcomes_of_jobs() -> None:
    def dying(say: Callable[[str], None]) -> str:
        say("something")
        os.kill(os.getpid(), signal.SIGBUS)
        return "not reached"

    def raising(say: Callable[[str], None]) -> str:
        raise ValueError("no")

    found = list(outcomes([lambda say: "a", dying, lambda say: "b", raising, lambda say: "c"]))
    assert [outcome.found for outcome in found] == ["a", "", "b", "", "c"]
    assert [outcome.crash for outcome in found] == ["", "SIGBUS", "", "exit status 1", ""]
    assert [outcome.doing for outcome in found] == ["", "something", "", "ValueError: no", ""]


def test_drawn_data_suits_the_programs() -> None:
    found = [judge(random_program(f"partial/{number}")).kind for number in range(150)]
    assert ILL_FORMED not in found
