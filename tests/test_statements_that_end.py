"""Statements between a reduction and its epilogue after which the epilogue may not run.

An assertion may fail and a foreign function may raise: whatever faults after it was protected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue import verify
from generated_modules.child import begins, in_child
from mutation import without

RAISES = "testing.raises_if_zero"


@tvm_ffi.register_global_func(RAISES)
def raises_if_zero(number: int) -> int:
    if number == 0:
        raise ValueError("zero")
    return 0


def program(before: str, between: str, operand: str) -> tirx.PrimFunc:
    """A sum of rows and its epilogue, with statements before the two and between them."""
    text = f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4,), "int32"), D: T.Buffer((4,), "int32")):
    temp = T.sblock_alloc_buffer((4,), "int32")
    {before}
    for i, k in T.grid(4, 8):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] += A[vi, vk]
    {between}
    for i in range(4):
        with T.sblock("epilogue"):
            vi = T.axis.spatial(4, i)
            D[vi] = temp[vi] + {operand}
"""
    return tvm.script.from_source(text, {"T": T})


ASSERTION = 'assert C[0] != 0, "zero"'
CALL = f'T.evaluate(T.call_packed("{RAISES}", C[0]))'
BLOCK = f'with T.sblock("call"):\n        T.reads(C[0])\n        T.writes()\n        {CALL}'
NOTHING = "T.evaluate(0)"
DIVISION = "T.truncdiv(1000, C[0])"
LOAD = "C[C[0]]"
STATEMENTS = {"assertion": ASSERTION, "call": CALL, "block": BLOCK}


def fused(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, Any]:
    sch = s_tir.Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue("total")
    return sch.mod["main"], report.certificate


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("operand", [DIVISION, LOAD])
def test_what_may_fault_does_not_move_over_a_statement_that_may_end(
    statement: str, operand: str
) -> None:
    func = program(NOTHING, STATEMENTS[statement], operand)
    with pytest.raises(s_tir.ScheduleError, match="may end the program before") as caught:
        fused(func)
    assert fuse_epilogue.refusal_code(caught.value) == "structure"
    with without("structure"):
        after, certificate = fused(func)
    with pytest.raises(verify.CertificateError, match="where the function before need not"):
        verify.check(func, after, certificate)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_cannot_fault_moves(statement: str) -> None:
    func = program(NOTHING, STATEMENTS[statement], "C[vi]")
    verify.check(func, *fused(func))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_ends_before_the_reduction_does_not_matter(statement: str) -> None:
    func = program(STATEMENTS[statement], NOTHING, DIVISION)
    verify.check(func, *fused(func))


def test_the_division_would_end_the_process() -> None:
    func = program(NOTHING, ASSERTION, DIVISION)
    with without("structure"):
        functions = {"before": func, "after": fused(func)[0]}
    named = {name: each.with_attr("global_symbol", name) for name, each in functions.items()}
    built = tvm.compile(tvm.IRModule(named), target="llvm")
    zeros = [tvm.runtime.tensor(np.zeros(shape, "int32")) for shape in ((4, 8), 4, 4)]

    def called(name: str) -> Any:
        yield begins(name)
        built[name](*zeros)

    assert in_child(lambda: called("before")).fault == "RuntimeError: zero"
    assert in_child(lambda: called("after")).fault == "SIGFPE"
