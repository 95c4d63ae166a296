"""What the comparison of two functions goes by: places, not names; steps; numbers that wrap."""

from __future__ import annotations

from typing import Any

import pytest
import tvm_ffi
from tvm import tirx
from tvm.ir import Var, prim
from tvm.script import from_source
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fuse_epilogue.verify import NotEquivalent, UnsupportedError, compile_function, equivalent


def difference_of(first: int, second: int, names: tuple[str, str]) -> PrimFunc:
    """Return ``D = P[first] - P[second]`` for two parameters with these names."""
    buffers = [tirx.decl_buffer((4,), "float32", name=name) for name in (*names, "D")]

    @T.prim_func(s_tir=True)
    def func(P: T.Buffer((4,)), Q: T.Buffer((4,)), D: T.Buffer((4,))):
        for i in range(4):
            with T.sblock("b"):
                vi = T.axis.spatial(4, i)
                D[vi] = P[vi] - Q[vi]

    places = [buffers[first], buffers[second], buffers[2]]
    table = {old.__chandle__(): new for old, new in zip(func.params, places, strict=True)}

    def renamed(var: Any) -> Any:
        return table.get(var.__chandle__(), var)

    return PrimFunc(buffers, tvm_ffi.structural_map(func.body, (Var, renamed)))


def test_two_parameters_of_one_name_are_two() -> None:
    names = ("A", "A")
    assert equivalent(difference_of(0, 1, names), difference_of(0, 1, names)).proved
    with pytest.raises(NotEquivalent):
        equivalent(difference_of(0, 1, names), difference_of(1, 0, names))
    program = compile_function(difference_of(0, 1, names))
    assert [each.name for each in program.parameters] == ["A", "A (2)", "D"]


def test_two_dimensions_of_one_name_are_two() -> None:
    sizes = [Var("n", "int32"), Var("n", "int32")]
    source, target = (
        tirx.decl_buffer((n,), "float32", name=x) for n, x in zip(sizes, "AD", strict=True)
    )

    @T.prim_func(s_tir=True)
    def func(n: T.int32, D: T.Buffer((8,))):
        for i in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(n, i)
                D[vi] = T.float32(1)

    table = {func.params[0].__chandle__(): sizes[1], func.params[1].__chandle__(): target}

    def renamed(var: Any) -> Any:
        return table.get(var.__chandle__(), var)

    body = tvm_ffi.structural_map(func.body, (Var, renamed))
    given = {"n": 3, "n (2)": 4}
    twice = PrimFunc([source, target], body)
    assert equivalent(twice, twice, sizes=given).sizes == given


@pytest.mark.parametrize("kind", [tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL])
def test_steps_of_loops_count(kind: Any) -> None:
    @T.prim_func(s_tir=True)
    def every(A: T.Buffer((8,)), D: T.Buffer((8,))):
        for i in range(8):
            with T.sblock("b"):
                vi = T.axis.spatial(8, i)
                D[vi] = A[vi]

    def stepping(step: int) -> PrimFunc:
        def changed(loop: Any) -> Any:
            parts = loop.loop_var, loop.min, loop.extent, kind, loop.body
            return tirx.For(*parts, step=prim.IntImm("int32", step))

        return every.with_body(tvm_ffi.structural_map(every.body, (tirx.For, changed)))

    equivalent(stepping(2), stepping(2))
    with pytest.raises(NotEquivalent):
        equivalent(every, stepping(2))
    with pytest.raises(UnsupportedError, match="the step of loop 'i' is not positive"):
        equivalent(every, stepping(0))


@pytest.mark.parametrize("dtype", ["uint32", "int16", "uint64"])
def test_a_number_may_be_more_than_the_next_one(dtype: str) -> None:
    """No data meets it, and over whole numbers it is never so; but integers wrap around."""
    total = f"A[vi] * T.{dtype}(3) + B[vi] * T.{dtype}(7) + C[vi] * T.{dtype}(11)"

    def chosen(value: str) -> PrimFunc:
        arrays = ", ".join(f'{name}: T.Buffer((2,), "{dtype}")' for name in "ABCD")
        return from_source(f"""
@T.prim_func(s_tir=True)
def main({arrays}):
    for i in range(2):
        with T.sblock("b"):
            vi = T.axis.spatial(2, i)
            D[vi] = {value}
""")

    before = chosen(f"T.Select({total} < {total} + T.{dtype}(1), A[vi], B[vi])")
    try:
        assert not equivalent(before, chosen("A[vi]"), compiled=False, timeout=1).proved
    except NotEquivalent:
        pass
