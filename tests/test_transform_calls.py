"""Tails that call functions such as exp: what the pass decides on, and how it places them."""

from __future__ import annotations

import re

import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.ir import IRModule
from tvm.script import tirx as T

from fuse_epilogue import workloads
from fuse_epilogue.transform import FuseReductionEpilogue, report_of
from fuse_epilogue.transform.fuse_one import fuse_one, reductions_of

ROWS = 64


def decided(columns: int, terms: int, activation: str = "silu", **options: object) -> bool:
    """Whether the product of ROWS x terms and terms x columns, a bias, and that is fused."""
    func = workloads.matmul(ROWS, columns, terms, activation=activation)
    fuse = FuseReductionEpilogue(**{"policy": "planner", **options})
    (entry,) = report_of(fuse(IRModule({"main": func}))).functions[0].reductions
    assert entry.fusion.fusable
    assert entry.fused or "a function such as exp" in entry.decision
    return entry.fused


# A row saves what three intermediates have of it (the sum, the biased, the sigmoid), but for a row
# of each that is left: 3 * 63 / 64 of the columns.
@pytest.mark.parametrize(
    ("columns", "terms", "fused"),
    [
        (8, 64, False),  # 23.6 elements, 64 terms
        (8, 23, True),
        (8, 24, False),
        (128, 64, True),  # 378 elements
        (43, 1000, False),  # 126.98 elements, and not more than 128 terms are lost
        (44, 1000, True),  # 129.9
        (1, 64, False),  # single elements
    ],
)
def test_short_rows_with_calls_do_not_pay(columns: int, terms: int, fused: bool) -> None:
    assert decided(columns, terms) is fused


def test_it_is_the_call_and_the_loops_as_they_are() -> None:
    assert not decided(8, 64)
    assert decided(8, 64, "relu")
    assert decided(8, 64, rows=False)
    assert decided(8, 64, policy="always")


def chain(middle: str) -> tirx.PrimFunc:
    """A sum, and behind it + 1, a function, * 2."""
    call = getattr(T, middle)

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((4, 8, 3), "float32"), y: T.Buffer((4, 8), "float32")):
        total = T.sblock_alloc_buffer((4, 8), "float32")
        more = T.sblock_alloc_buffer((4, 8), "float32")
        called = T.sblock_alloc_buffer((4, 8), "float32")
        for i, j, k in T.grid(4, 8, 3):
            with T.sblock("total"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    total[vi, vj] = T.float32(0)
                total[vi, vj] += x[vi, vj, vk]
        for i, j in T.grid(4, 8):
            with T.sblock("more"):
                vi, vj = T.axis.remap("SS", [i, j])
                more[vi, vj] = total[vi, vj] + T.float32(1)
        for i, j in T.grid(4, 8):
            with T.sblock("called"):
                vi, vj = T.axis.remap("SS", [i, j])
                called[vi, vj] = call(more[vi, vj])
        for i, j in T.grid(4, 8):
            with T.sblock("twice"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = called[vi, vj] * T.float32(2)

    return func


@pytest.mark.parametrize(
    ("middle", "rows", "blocks"),
    [
        ("exp", True, ["total", "more", "called", "twice"]),
        ("exp", False, ["total", "twice"]),
        ("sqrt", True, ["total", "twice"]),
    ],
)
def test_on_rows_a_call_has_its_loop_for_itself(middle: str, rows: bool, blocks: list[str]) -> None:
    fuse = FuseReductionEpilogue("always", rows=rows)
    fused = fuse(IRModule({"main": chain(middle)}))
    sch = s_tir.Schedule(fused, debug_mask="all")
    found = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))]
    assert found == blocks
    # All of them in the loop of the rows.
    assert len({sch.get(sch.get_loops(block)[0]).loop_var for block in blocks}) == 1
    assert fuse(fused).same_as(fused)


INTRINSICS = [
    *("exp", "exp2", "exp10", "log", "log2", "log1p", "log10", "erf", "tanh", "sigmoid", "sin"),
    *("cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("sqrt", "rsqrt", "floor", "ceil", "round", "nearbyint", "trunc", "fabs"),
]


def behind_a_sum(name: str) -> tirx.PrimFunc:
    x, k = te.placeholder((2, 4, 3), "float32", "x"), te.reduce_axis((0, 3), "k")
    total = te.compute((2, 4), lambda *i: te.sum(x[(*i, k)], axis=k))
    called = te.compute((2, 4), lambda *i: getattr(T, name)(total[i]))
    return te.create_prim_func([x, called]).with_attr("global_symbol", name)


@pytest.fixture(scope="module")
def assembly() -> dict[str, str]:
    """Of every function, for a processor that can round; all are compiled at once."""
    mod = IRModule({name: behind_a_sum(name) for name in INTRINSICS})
    target = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mattr": ["+sse4.1"]}
    text = tvm.compile(mod, target=tvm.target.Target(target)).mod.inspect_source("asm")
    _, *parts = re.split(r"^(\w+):", text, flags=re.MULTILINE)
    # TVM writes two functions for each, one for the arguments, and LLVM may put them together.
    code = dict(zip(parts[::2], parts[1::2], strict=True))
    return {n: code[f"__tvm_ffi_{n}"] + code.get(f"{n}_compute_", "") for n in INTRINSICS}


@pytest.mark.parametrize("name", INTRINSICS)
def test_what_llvm_calls(name: str, assembly: dict[str, str]) -> None:
    """The core's table says the same as the assembly."""
    func = behind_a_sum(name)
    fused = fuse_one(func, reductions_of(func)[0][0])
    assert fused.fusion.fusable
    called = set(re.findall(r"callq?\s+(\w+)@PLT", assembly[name])) - {
        "TVMFFIErrorSetRaisedFromCStrParts",
        "memset",
    }
    assert fused.balance.calls is bool(called), called
