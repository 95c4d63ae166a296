"""For each reason to refuse a schedule: a program that is refused for it, and its accepted twin.

The two differ in one piece of text. The twin is executed; what is refused names the block, loop or
buffer, and stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm_ffi import structural_equal

from fuse_epilogue import workloads
from fuse_epilogue.neuron.emit import REFUSALS, EmitError, emit

#: y = 2 x, by way of two tiles.
DOUBLE = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((64, 64), "float32"), y: T.Buffer((64, 64), "float32")):
    t = T.sblock_alloc_buffer((64, 64), "float32", scope="trn.sbuf")
    r = T.sblock_alloc_buffer((64, 64), "float32", scope="trn.sbuf")
    T.evaluate(0)
    for i, j in T.grid(64, 64):
        with T.sblock("load"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj]
    for i in T.serial(64, annotations={"nki_dim": "P"}):
        for j in T.serial(64, annotations={"nki_dim": "F"}):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.sblock_attr({"nki_engine": "vector"})
                r[vi, vj] = t[vi, vj] * T.float32(2)
    for i, j in T.grid(64, 64):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = r[vi, vj]
"""

#: y = the sums of the rows of x.
SUM = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((64, 32), "float32"), y: T.Buffer((64,), "float32")):
    t = T.sblock_alloc_buffer((64, 32), "float32", scope="trn.sbuf")
    r = T.sblock_alloc_buffer((64,), "float32", scope="trn.sbuf")
    for i, j in T.grid(64, 32):
        with T.sblock("load"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj]
    for i in T.serial(64, annotations={"nki_dim": "P"}):
        for j in T.serial(32, annotations={"nki_dim": "F"}):
            with T.sblock("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    r[vi] = T.float32(0)
                r[vi] = r[vi] + t[vi, vj]
    for i in T.serial(64):
        with T.sblock("store"):
            vi = T.axis.remap("S", [i])
            y[vi] = r[vi]
"""

#: y = x.T @ x.
PRODUCT = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((64, 32), "float32"), y: T.Buffer((32, 32), "float32")):
    t = T.sblock_alloc_buffer((64, 32), "float32", scope="trn.sbuf")
    p = T.sblock_alloc_buffer((32, 32), "float32", scope="trn.psum")
    r = T.sblock_alloc_buffer((32, 32), "float32", scope="trn.sbuf")
    for i, j in T.grid(64, 32):
        with T.sblock("load"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj]
    for k in T.serial(64, annotations={"nki_dim": "P"}):
        for i in T.serial(32, annotations={"nki_dim": "lhs_F"}):
            for j in T.serial(32, annotations={"nki_dim": "rhs_F"}):
                with T.sblock("product"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        p[vi, vj] = T.float32(0)
                    p[vi, vj] = p[vi, vj] + t[vk, vi] * t[vk, vj]
    for i, j in T.grid(32, 32):
        with T.sblock("evict"):
            vi, vj = T.axis.remap("SS", [i, j])
            r[vi, vj] = p[vi, vj]
    for i, j in T.grid(32, 32):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = r[vi, vj]
"""


@dataclass(frozen=True)
class Case:
    """A refusal.

    - `code`: of the refusal.
    - `program`: TVMScript.
    - `bad`, `good`: what is replaced in it for the one that is refused, and for its twin if that is
      necessary.
    - `names`: what the message is about: a regular expression.
    - `result`: what the twin computes.
    """

    code: str
    program: str
    bad: tuple[str, str]
    names: str
    result: Callable[[np.ndarray], np.ndarray] = lambda x: x * 2
    good: tuple[str, str] | None = None


F = 'T.serial(64, annotations={"nki_dim": "F"})'
P = 'T.serial(64, annotations={"nki_dim": "P"})'
TILE = 'T.sblock_alloc_buffer((64, 64), "float32", scope="trn.sbuf")'
ENGINE = 'T.sblock_attr({"nki_engine": "vector"})'
VALUE = "t[vi, vj] * T.float32(2)"
CASES = [
    Case("statement", DOUBLE, ("T.evaluate(0)", 'T.evaluate(T.call_extern("int32", "f"))'), "Eval"),
    Case(
        "thread-binding",
        DOUBLE,
        (P, P.replace("serial(64", 'thread_binding(64, thread="threadIdx.x"')),
        "loop 'i'",
    ),
    Case(
        "memory-scope", DOUBLE, (f"r = {TILE}", f"r = {TILE.replace('trn.sbuf', 'shared')}"), "'r'"
    ),
    Case("dtype", DOUBLE, ("float32", "int32"), "block 'double'.*int32"),
    Case(
        "in-place",
        DOUBLE,
        ("y[vi, vj] = r[vi, vj]", "y[vi, vj] = r[vi, vj] + y[vi, 63 - vj]"),
        "block 'store'.*other elements of 'y'",
    ),
    Case("marks", DOUBLE, (F, "T.serial(64)"), "block 'double'.*loop 'j'"),
    Case("no-partition-loop", DOUBLE, (P, F), "block 'double'"),
    Case("partitions", DOUBLE, ("64", "129"), "loop 'i.*129", good=("64", "128")),
    Case("not-affine", DOUBLE, (VALUE, "t[vi, vj // 2] * T.float32(2)"), "block 'double'.*// 2"),
    Case(
        "layout",
        DOUBLE,
        (VALUE, "t[vi, vj] + t[vj, vi]"),
        "'t'.*block 'double'",
        good=(VALUE, "t[vi, vj] + t[vi, vj]"),
    ),
    Case(
        "broadcast",
        DOUBLE,
        (VALUE, "t[vi, vj] * t[0, vj]"),
        "'t' in block 'double'",
        lambda x: x * x[:, :1],
        good=(VALUE, "t[vi, vj] * t[vi, 0]"),
    ),
    Case(
        "reads-hbm",
        DOUBLE,
        (VALUE, "t[vi, vj] + x[vi, vj]"),
        "block 'double'.*'x'",
        good=(VALUE, "t[vi, vj] + t[vi, vj]"),
    ),
    Case("writes-hbm", DOUBLE, ("= r[vi, vj]", "= r[vi, vj] * T.float32(2)"), "block 'store'.*'y'"),
    Case(
        "dma",
        DOUBLE,
        (f"t = {TILE}", f"t = {TILE.replace('trn.sbuf', 'trn.psum')}"),
        "block 'load'.*PSUM",
    ),
    Case(
        "dma",
        DOUBLE,
        ("t[vi, vj] = x", 'T.sblock_attr({"nki_engine": "dma"})\n            t[vi, vj] = x'),
        "block 'load'.*16 bits, transposed",
    ),
    Case(
        "reduction",
        SUM,
        ("r[vi] + t", "r[vi] - t"),
        "block 'sum'.*subtract",
        lambda x: x.sum(axis=1),
    ),
    Case(
        "matmul",
        PRODUCT,
        ('scope="trn.psum"', 'scope="trn.sbuf"'),
        "block 'product'.*'p'",
        lambda x: x.T @ x,
    ),
    Case(
        "expression",
        DOUBLE,
        (VALUE, "T.floor(t[vi, vj])"),
        "block 'double'.*floor",
        np.abs,
        good=(
            f"{ENGINE}\n                r[vi, vj] = {VALUE}",
            "r[vi, vj] = T.sqrt(t[vi, vj] * t[vi, vj])",
        ),
    ),
    Case(
        "late",
        DOUBLE,
        ("y[vi, vj] = r", 'T.sblock_attr({"nki_late": True})\n            y[vi, vj] = r'),
        "block 'store'.*reads its result",
        good=("t[vi, vj] = x", 'T.sblock_attr({"nki_late": True})\n            t[vi, vj] = x'),
    ),
    Case(
        "engine",
        DOUBLE,
        ('"vector"', '"tensor"'),
        "block 'double'.*tensor engine",
    ),
]


def _parse(text: str) -> tvm.tirx.PrimFunc:
    return tvm.script.from_source(text)


def _replaced(program: str, change: tuple[str, str] | None) -> str:
    if change is None:
        return program
    assert change[0] in program
    return program.replace(*change)


def _refused(func, code: str, names: str) -> None:
    before = tvm.IRModule({"main": func})
    sch = tvm.s_tir.Schedule(func)
    with pytest.raises(EmitError) as caught:
        emit(sch)
    error = caught.value
    assert error.code == code, str(error)
    message = str(error)
    assert message == f"{error.subject}: {error.reason}; {REFUSALS[code]} [{code}]"
    assert re.search(names, message), message
    assert structural_equal(before["main"], sch.mod["main"])
    with pytest.raises(EmitError, match=re.escape(message)):
        emit(func)


def _right(func, result) -> None:
    kernel = emit(func)
    kernel.check("trn1")
    kernel.check("trn2")
    (shape, dtype), *_ = kernel.inputs.values()
    x = np.random.default_rng(3).integers(-4, 5, shape).astype(dtype)
    np.testing.assert_array_equal(kernel(x), result(x))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_refused_with_this_code_and_the_twin_is_right(case):
    _refused(_parse(_replaced(case.program, case.bad)), case.code, case.names)
    _right(_parse(_replaced(case.program, case.good)), case.result)


def test_symbolic_shape():
    for rows in ("m", 64):
        sch = tvm.s_tir.Schedule(workloads.elementwise(rows, 32, bias=False, activation="relu"))
        block = sch.get_sblock("relu")
        sch.cache_read(block, 0, "trn.sbuf")
        sch.cache_write(block, 0, "trn.sbuf")
        if rows == "m":
            _refused(sch.mod["main"], "symbolic-shape", "'x'.*m")
        else:
            _right(sch.mod["main"], lambda x: np.maximum(x, 0))


def test_every_code_has_a_case():
    assert {case.code for case in CASES} | {"symbolic-shape"} == set(REFUSALS)


#: Matrices of 16 bits, transposed as they are loaded: two of one row, or two by two.
TRANSPOSED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((32, SIZES, 64), "bfloat16"), y: T.Buffer((64, SIZES, 32), "bfloat16")):
    t = T.sblock_alloc_buffer((64, SIZES, 32), "bfloat16", scope="trn.sbuf")
    for loops in T.grid(64, SIZES, 32):
        with T.sblock("load"):
            T.sblock_attr({"nki_engine": "dma"})
            p, between, r = T.axis.remap("KINDS", [loops])
            t[p, between, r] = x[r, between, p]
    for loops in T.grid(64, SIZES, 32):
        with T.sblock("store"):
            p, between, r = T.axis.remap("KINDS", [loops])
            y[p, between, r] = t[p, between, r]
"""


def _transposed(sizes: list[int]) -> tvm.tirx.PrimFunc:
    names = [f"k{place}" for place in range(len(sizes))]
    text = TRANSPOSED.replace("SIZES", ", ".join(map(str, sizes)))
    text = text.replace("KINDS", "S" * (len(sizes) + 2)).replace("between", ", ".join(names))
    return _parse(text.replace("loops", ", ".join(["i", *(f"j{name}" for name in names), "l"])))


def test_transfers_transpose_up_to_three_dimensions():
    kernel = emit(_transposed([2]))
    assert kernel.source.count("dma_transpose(") == 1
    kernel.check("trn2")
    x = np.arange(32 * 2 * 64).reshape(32, 2, 64).astype("bfloat16")
    np.testing.assert_array_equal(kernel(x), x.transpose(2, 1, 0))
    _refused(_transposed([2, 2]), "dma", "block 'load'.*16 bits, transposed")
