"""A value that is carried from one iteration of a loop to a later one keeps its buffer outside.

TVM allocates a buffer in the innermost loop around all that uses it. The last block that uses it
outside of a loop must not move in, unless the loop needs no value of an earlier iteration.
"""

from __future__ import annotations

from textwrap import indent

import pytest
import tvm
from tvm import s_tir
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from fuse_epilogue import verify
from mutation import without

pytestmark = pytest.mark.cpp

CARRIED = "carried-value"
PARAMETERS = ", ".join(
    f'{name}: T.Buffer({shape}, "int32")'
    for name, shape in {"X": (3, 22), "W": (3, 3), "I": (20,), "Y": (3, 20), "Z": (3, 20)}.items()
)
SHAPE = '(3, 20), "int32"'

# Block "sum" with its loop, for axes c and i.
SUM = """\
for k in range(3):
    with T.sblock("sum"):
        vc, vi, vk = T.axis.remap("SSR", [c, i, k])
        with T.init():
            S[vc, vi] = 0
        S[vc, vi] = S[vc, vi] + X[vc, vi + vk] * W[vc, vk]
"""
COLUMNS = "for c, i in T.grid(3, 20):"
DOUBLED = "Y[vc, vi] = S[vc, vi] * 2"


def inside(loops: str, *statements: str) -> str:
    return f"{loops}\n" + indent("".join(statements), "    ")


def block(store: str, name: str) -> str:
    return f'with T.sblock("{name}"):\n    vc, vi = T.axis.remap("SS", [c, i])\n    {store}\n'


def program(nest: str, outside: str = DOUBLED, parameter: bool = False) -> PrimFunc:
    """A nest of loops, and behind it the block "after"."""
    allocated = '    D = T.sblock_alloc_buffer((3, 20), "int32")\n'
    if not parameter:
        allocated += f"    S = T.sblock_alloc_buffer({SHAPE})\n"
    head = f"def main({PARAMETERS}" + (f", S: T.Buffer({SHAPE})" if parameter else "") + "):\n"
    body = indent(nest + inside(COLUMNS, block(outside, "after")), "    ")
    text = "@T.prim_func(s_tir=True)\n" + head + allocated + body
    return tvm.script.from_source(text, extra_vars={"T": T})


def reading(store: str) -> str:
    """A nest with the sums, and behind each of them a block that stores to Z."""
    return inside(COLUMNS, SUM, block(store, "other"))


def split(func: PrimFunc) -> PrimFunc:
    sch = s_tir.Schedule(func)
    sch.split(sch.get_loops("other")[1], [5, 4])
    return sch.mod["main"]


HALF = "Z[vc, vi] = S[vc, vi // 2]"
BEFORE = "Z[vc, vi] = T.if_then_else(vi > 0, S[vc, vi - 1], 0)"

LOSING = {
    "an earlier column": program(reading(HALF)),
    "an earlier column, if there is one": program(
        reading("Z[vc, vi] = T.if_then_else(vi > 0, S[vc, vi - 1], 0) + X[vc, vi]")
    ),
    "an earlier column, before the sum": program(inside(COLUMNS, block(BEFORE, "other"), SUM)),
    "an earlier column, in the init": program(
        inside(COLUMNS, SUM.replace("= 0", "= T.if_then_else(vi > 0, S[vc, vi - 1], 1)"))
    ),
    "an earlier row": program(
        inside(
            "for c in range(3):",
            inside("for i in range(20):", SUM),
            inside("for i in range(20):", block("Z[vc, vi] = S[vc // 2, vi]", "other")),
        )
    ),
    "split loops": split(program(reading(HALF))),
    "of a tail": program(
        inside(
            COLUMNS,
            SUM,
            block("D[vc, vi] = T.max(S[vc, vi], 0)", "tail"),
            block("Z[vc, vi] = D[vc, vi // 2]", "other"),
        ),
        "Y[vc, vi] = D[vc, vi] * D[vc, vi]",
    ),
}

KEEPING = {
    "the same column": program(reading("Z[vc, vi] = S[vc, vi] // 2")),
    "a column of the same row": program(
        inside(
            "for c in range(3):",
            inside("for i in range(20):", SUM),
            inside("for i in range(20):", block(HALF, "other")),
        )
    ),
    "some column of the same row": program(
        inside(
            "for c in range(3):",
            inside("for i in range(20):", SUM),
            inside(
                "for i in range(20):", block("Z[vc, vi] = S[vc, T.bitwise_and(I[vi], 15)]", "other")
            ),
        )
    ),
    "a loop of one iteration": program(
        inside("for o, c, i in T.grid(1, 3, 20):", SUM)
        + inside("for c, i in T.grid(3, 20):", block(HALF, "other"))
    ),
    "another block stays outside": program(
        reading(HALF) + inside(COLUMNS, block("D[vc, vi] = S[vc, 19 - vi]", "mirror"))
    ),
    "a parameter": program(reading(HALF), parameter=True),
    "the same column of split loops": split(program(reading("Z[vc, vi] = S[vc, vi] * 3"))),
    "of a tail, the same column": program(
        inside(
            COLUMNS,
            SUM,
            block("D[vc, vi] = T.max(S[vc, vi], 0)", "tail"),
            block("Z[vc, vi] = D[vc, vi] // 2 + D[vc, vi]", "other"),
        ),
        "Y[vc, vi] = D[vc, vi] * D[vc, vi]",
    ),
}


def fused(func: PrimFunc) -> PrimFunc:
    sch = s_tir.Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue("sum", "after")
    return sch.mod["main"]


@pytest.mark.parametrize("func", LOSING.values(), ids=LOSING)
def test_a_carried_value_is_not_lost(func: PrimFunc) -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        fused(func)
    assert fuse_epilogue.refusal_code(caught.value) == CARRIED
    # Not for nothing: the program that TVM builds would be another one.
    with without(CARRIED):
        lossy = fused(func)
    with pytest.raises(verify.NotEquivalent):
        verify.equivalent(func, lossy)


@pytest.mark.parametrize("func", KEEPING.values(), ids=KEEPING)
def test_nothing_is_carried(func: PrimFunc) -> None:
    verify.equivalent(func, fused(func))


def test_some_column_may_be_an_earlier_one() -> None:
    func = program(reading("Z[vc, vi] = S[vc, T.bitwise_and(I[vi], vi)]"))
    with pytest.raises(s_tir.ScheduleError) as caught:
        fused(func)
    assert fuse_epilogue.refusal_code(caught.value) == CARRIED
    # Each iteration would have a row of its own, which only happens to be where the last one was.
    with without(CARRIED):
        placed = tvm.IRModule({"main": fused(func)})
    for step in ("LowerInitBlock", "PlanAndUpdateBufferAllocationLocation"):
        placed = getattr(s_tir.transform, step)()(placed)
    before, _, inside = placed.script().partition("for c, i in T.grid(3, 20)")
    assert "S = T.sblock_alloc_buffer" not in before
    assert "S = T.sblock_alloc_buffer" in inside


def test_it_says_who_reads_what() -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        fused(LOSING["an earlier column"])
    message = str(caught.value).rpartition("Error message: ")[2]
    assert message.startswith(
        "[carried-value] block 'other' in loop 'i' reads S[vc, vi // 2], which another iteration "
        "may have computed, and but for block 'after' all that uses 'S' is in that loop. "
    )


def test_one_of_two_that_stand_outside_may_move_in() -> None:
    nest = reading(HALF) + inside(COLUMNS, block("D[vc, vi] = S[vc, vi]", "first"))
    func = program(nest)
    sch = s_tir.Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue("sum")
    assert [step.epilogue for step in report.steps] == ["first"]
    verify.equivalent(func, sch.mod["main"])
