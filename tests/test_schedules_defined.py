"""Schedules for LLVM evaluate nothing where the function does not, unless it is defined there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.ir import prim
from tvm.script import from_source

import fuse_epilogue
from fuse_epilogue.kernels.cpu import elementwise
from fuse_epilogue.kernels.cpu.depthwise import row_limits
from fuse_epilogue.kernels.cpu.for_llvm import for_llvm
from fuse_epilogue.rewrites import branches, prepare
from fuse_epilogue.schedules import cpu, explain
from fuse_epilogue.transform import kinds
from planned_functions.build import KINDS, build
from planned_functions.draw import draw
from planned_functions.memory import fenced, in_child
from planned_functions.operands import GUARDS, OPERANDS, OPERATIONS, WHOLE
from planned_functions.spec import Function, Operand, Stage
from planned_functions.verdict import DIED, SAME, WRONG, judge

LLVM = tvm.target.Target({"kind": "llvm", "num-cores": 1})


def rows(operand: str, guard: str = "select", m: int = 16) -> Function:
    """Sums of rows, and what is added to them."""
    stage = Stage("add", Operand(operand, "row", guard))
    sizes, form = {"m": m, "n": 8}, {"monoid": "sum"}
    return Function("rows", sizes, "int32", "int32", form, stages=(stage,))


def followed(function: Function) -> Function:
    """With another block that reads the result of the one before twice."""
    stage = Stage("subtract", Operand("cast", "row", "whole select"))
    return replace(function, stages=(*function.stages, stage))


def conv(guard: str, channels_last: bool = False, columns: int = 16) -> Function:
    """A convolution whose term is guarded."""
    form = {"stride": 1, "dilation": 1, "left": 0, "right": 0, "padding": "guard"}
    form |= {"channels_last": channels_last, "guard": guard}
    sizes = {"n": 1, "c": 8, "w": columns, "k": 3}
    return Function("conv", sizes, "int32", "int32", form)


def prepared(function: Function | str) -> Any:
    func = from_source(function) if isinstance(function, str) else build(function).func
    made = prepare.in_order(func)
    assert made is not None
    return made


def selections(func: Any) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (prim.Select, found.append))
    return len(found)


# ---- Selections become branches ------------------------------------------------------------------


@pytest.mark.parametrize("operand", ["quotient", "remainder", "gather", "short", "late"])
def test_a_selection_of_what_is_not_defined_becomes_a_branch(operand: str) -> None:
    func = prepared(rows(operand))
    assert selections(func) == 0
    assert func.script().count("T.if_then_else") == 1


@pytest.mark.parametrize("operand", ["shift", "cast", "overflow"])
def test_a_selection_whose_values_can_be_discarded_stays(operand: str) -> None:
    func = build(rows(operand)).func
    assert selections(func) == 1
    assert branches.with_branches(func).same_as(func)


@pytest.mark.parametrize("numbers", [(-1, -(1 << 31)), (0, 7), (3, 100)])
def test_a_quotient_that_overflows_stays_behind_its_condition(numbers: tuple[int, int]) -> None:
    func = from_source("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 8), "int32"), n: T.int32, x: T.int32, D: T.Buffer((64,), "int32")):
    for i, j in T.grid(64, 8):
        with T.sblock("total"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                D[vi] = 0
            D[vi] += A[vi, vj] + T.if_then_else(n > 0, T.truncdiv(x, n), 0)
""")
    made = prepare.in_order(func)
    sch = tvm.s_tir.Schedule(made)
    sch.unroll(sch.get_loops("total")[1])
    built = tvm.compile(sch.mod, target=LLVM)["main"]
    data = np.arange(512, dtype="int32").reshape(64, 8)

    def run() -> str:
        result = tvm.runtime.tensor(np.zeros(64, "int32"))
        built(tvm.runtime.tensor(data), *numbers, result)
        return str(result.numpy().tolist())

    n, x = numbers
    wanted = data.sum(1) + 8 * (x // n if n > 0 else 0)
    assert in_child([run]) == [str(wanted.tolist())]


def test_a_guard_in_a_selection_is_no_proof() -> None:
    # TVM's simplifier drops the inner one, which the outer one repeats.
    assert selections(prepared(rows("gather", "if_then_else in select"))) == 0
    assert selections(prepared(rows("cast", "if_then_else in select"))) == 1


BOUNDED = {
    "an index": ("g[vi] >= 0 and g[vi] < 5", "p[T.max(T.min(g[vi], 4), 0)]"),
    "a divisor": ("g[vi] > 0", "T.truncdiv(100, T.max(g[vi], 1))"),
    "an axis": ("vi < 5", "p[T.min(vi, 4)]"),
    "an axis, wrapped": ("vi < 5", "p[vi % 5]"),
}


def bounded(condition: str, value: str) -> Any:
    return from_source(f"""
@T.prim_func(s_tir=True)
def main(g: T.Buffer((64,), "int32"), p: T.Buffer((5,), "int32"), D: T.Buffer((64,), "int32")):
    for i in range(64):
        with T.sblock("chosen"):
            vi = T.axis.spatial(64, i)
            D[vi] = T.Select({condition}, {value}, 7)
""")


@pytest.mark.parametrize("what", BOUNDED)
def test_a_bound_that_a_condition_repeats_is_no_proof(what: str) -> None:
    """TVM's simplifier leaves it out there, and vectors compute both values of a selection."""
    condition, value = BOUNDED[what]
    assert selections(branches.with_branches(bounded(condition, value))) == 0
    # The condition says nothing of what is bounded.
    assert selections(branches.with_branches(bounded("D[vi] > 0", value))) == 1
    func = bounded(condition, value)
    rng = np.random.default_rng(1)
    g = rng.choice(np.array([-(1 << 30), -1, 0, 1, 4, 5, 1 << 30], "int32"), 64)
    arrays = [g, np.arange(5, dtype="int32"), np.zeros(64, "int32")]

    def run(built: Any) -> Any:
        def step() -> str:
            placed = [fenced(each, end=True, alignment=64) for each in arrays]
            built(*(tvm_ffi.from_dlpack(each) for each in placed))
            return str(placed[-1].tolist())

        return step

    builds = [tvm.compile(func, target=LLVM)["main"], fuse_epilogue.compile(func, LLVM)["main"]]
    results = in_child([run(built) for built in builds])
    assert results[0] == results[1] and results[0].startswith("[")


def test_an_opaque_call_is_not_discarded() -> None:
    analyzer = tvm.sym.Analyzer()
    x = tvm.tirx.Var("x", "float32")
    assert branches.may_be_discarded(tvm.tirx.exp(x), analyzer)
    assert not branches.may_be_discarded(tvm.tirx.call_extern("float32", "f", x), analyzer)


# ---- Divisions by axes ---------------------------------------------------------------------------


def divisors(func: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (prim.Div, lambda node: found.append(node.b)))
    return found


def test_a_division_by_an_axis_does_not_divide_by_zero() -> None:
    func = build(rows("quotient by the axis", "if_then_else")).func
    [before], [after] = divisors(func), divisors(prepare.in_order(func))
    assert tvm_ffi.structural_equal(after, branches._not_zero(before), map_free_vars=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8", "uint32", "uint64"])
def test_a_divisor_is_one_in_place_of_zero_and_else_itself(dtype: str) -> None:
    text = f"""@T.prim_func(s_tir=True)
def main(y: T.Buffer((19,), "{dtype}"), x: T.Buffer((19,), "{dtype}")):
    for i in range(19):
        with T.sblock("copy"):
            vi = T.axis.spatial(19, i)
            y[vi] = x[vi]
"""
    func = from_source(text)

    def store(node: Any) -> Any:
        return tvm.tirx.BufferStore(node.buffer, branches._not_zero(node.value), node.indices)

    func = func.with_body(tvm_ffi.structural_map(func.body, (tvm.tirx.BufferStore, store)))
    info = np.iinfo(dtype)
    small = np.arange(-8, 8).astype(dtype)
    values = np.concatenate([small, np.array([info.min, info.max, info.max - 1], dtype)])
    y = tvm.runtime.tensor(np.zeros(19, dtype))
    tvm.compile(func, target=LLVM)(y, tvm.runtime.tensor(values))
    np.testing.assert_array_equal(y.numpy(), np.where(values == 0, 1, values))


def test_a_division_that_is_proved_to_be_defined_stays() -> None:
    text = build(rows("quotient by the axis", "if_then_else")).text
    func = from_source(text.replace("vi - 8 + 1", "vi + 1"))
    assert branches.with_branches(func).same_as(func)


# ---- Convolutions --------------------------------------------------------------------------------


def form_of(function: Function) -> str:
    return str(cpu.DepthwiseConv1d(lanes=4).choose(build(function).func, LLVM))


def test_rows_that_a_guard_may_keep_from_being_read_are_not_loaded_whole() -> None:
    why = "a guard may keep it from reading outside of its input"
    for guard in ("row gather", "short rows", "short rows, select", "rows by data"):
        assert form_of(conv(guard)) == f"tiles of loops; not in rows: {why}"
        assert why in explain(build(conv(guard)).func, LLVM)
    # A guard around what is always inside, and a gather without a guard.
    assert form_of(conv("quotient")) == "rows, in vectors"
    assert form_of(conv("none")) == "rows, in vectors"
    text = build(conv("row gather")).text
    bare = text.replace("T.if_then_else(I[vc] >= 0 and I[vc] < 8, ", "(")
    bare = bare.replace(", T.int32(0))", ")")
    assert "if_then_else" not in bare
    choice = cpu.DepthwiseConv1d(lanes=4).choose(from_source(bare), LLVM)
    assert choice.form == "rows, in vectors"


def test_a_follower_that_is_more_than_a_store_has_no_plan() -> None:
    [stage] = rows("gather").stages
    branching = replace(stage, operand=replace(stage.operand, guard="statement"))
    text = explain(build(replace(rows("gather"), stages=(branching,))).func, LLVM)
    assert text.startswith("no plan: ")
    assert explain(build(rows("gather")).func, LLVM).startswith("plan: ")


def test_no_nan_is_cast_to_an_integer() -> None:
    """A cast of a NaN is undefined: what is cast is a maximum, which TVM makes the other value."""
    text = "@T.prim_func(s_tir=True)\ndef main(y: T.Buffer((8,)), x: T.Buffer((8,))):\n"
    text += "    for i in range(8):\n        with T.sblock('b'):\n"
    text += "            vi = T.axis.spatial(8, i)\n            y[vi] = T.{}(x[vi])\n"
    # Sigmoid rounds its exponent by adding a large number, without a cast.
    for name, num_casts in (("exp", 1), ("sigmoid", 0)):
        casts: list[Any] = []
        func = for_llvm(from_source(text.format(name)))
        tvm_ffi.structural_walk(func.body, (prim.Cast, casts.append))
        assert len(casts) == num_casts
        assert all(isinstance(cast.value, prim.Max) for cast in casts)
        assert all(isinstance(cast.value.b, prim.FloatImm) for cast in casts)


# ---- On memory that cannot be read ---------------------------------------------------------------

#: What dies without a guard, and the part of the package that keeps it.
DYING = {
    "a selection in vectors": (rows("gather"), branches, "may_be_discarded", True),
    "a quotient in vectors": (rows("quotient"), branches, "may_be_discarded", True),
    "a division by an axis": (
        # What is inlined into both arms of the next block occurs twice.
        followed(rows("quotient by the axis", "if_then_else", m=129)),
        branches,
        "_is_movable",
        False,
    ),
    "rows of a gather": (conv("row gather"), row_limits, "guarded", False),
    "rows by data": (conv("rows by data"), row_limits, "guarded", False),
}


#: A product that a stage replaces by its operand.
CHOOSING = Function(
    "product",
    {"m": 17, "n": 2, "k": 3},
    "int8",
    "int32",
    {"transposed": [False, False]},
    stages=(Stage("choose", Operand("short, strided", "row", "whole")),),
    tight=False,
)


def test_a_choice_by_data_is_not_that_of_a_state() -> None:
    """Its condition is guarded, and is not evaluated once more outside of its guard."""
    verdict = judge(CHOOSING, seed=1)
    assert (verdict.kind, verdict.detail) == (SAME, "")


def test_a_padding_is_not_computed_in_a_divisor() -> None:
    """TVM does not compile ``12 / 0`` under a guard that is never true, as in a first vector."""
    form = {"stride": 2, "dilation": 2, "left": 8, "right": 0, "padding": "block"}
    form |= {"channels_last": False, "guard": "quotient of x, select"}
    sizes = {"n": 1, "c": 7, "w": 8, "k": 5}
    # The target of every third seed has vectors of four.
    verdict = judge(Function("conv", sizes, "float16", "float32", form, tight=False), seed=3)
    assert (verdict.kind, verdict.detail) == (SAME, "")
    assert "module with a kernel of kind row program" in verdict.ways


@pytest.mark.parametrize("name", DYING)
def test_schedules_are_right_next_to_unreadable_memory(name: str) -> None:
    function, *_ = DYING[name]
    verdict = judge(function, seed=1)
    assert (verdict.kind, verdict.detail) == (SAME, "")
    assert verdict.schedules > 1


@pytest.mark.parametrize("name", DYING)
def test_they_are_not_where_the_check_is_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, module, check, answer = DYING[name]
    monkeypatch.setattr(module, check, lambda *_, **__: answer)
    assert judge(function, seed=1).kind == DIED


def elements(operand: str, guard: str = "select") -> Function:
    """An elementwise function: only the pass for whole modules schedules it."""
    sizes, stage = {"m": 16, "n": 32}, Stage("add", Operand(operand, "column", guard))
    return Function("elements", sizes, "int32", "int32", {"transposed": False}, stages=(stage,))


@pytest.mark.parametrize("operand", ["gather", "quotient"])
def test_kernels_of_modules_keep_guards(operand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judge(elements(operand), seed=1)
    assert (verdict.kind, verdict.detail) == (SAME, "")
    assert [way.split()[0] for way in verdict.ways] == ["module"]
    # Guards that remain selects are not put into vectors.
    monkeypatch.setattr(kinds, "with_branches", lambda func: func)
    assert judge(elements(operand), seed=1).kind == SAME
    monkeypatch.setattr(elementwise, "may_be_discarded", lambda *_: True)
    finish = "fuse_epilogue.kernels.cpu.for_llvm"
    monkeypatch.setattr(f"{finish}.with_conditional_divisions", lambda node: node)
    assert judge(elements(operand), seed=1).kind == DIED


#: Sizes that no vector and no tile divides, by what is done about the rest.
ODD = {
    "the last vector of a row": replace(elements("gather"), sizes={"m": 13, "n": 37}),
    "rows of a last tile": Function(
        "product",
        {"m": 17, "n": 19, "k": 5},
        "int8",
        "int32",
        {"transposed": [False, False]},
        stages=(Stage("add", Operand("gather", "row", "select")),),
    ),
    "the last vector of a sum": replace(rows("quotient"), sizes={"m": 13, "n": 11}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_sizes_are_right_next_to_unreadable_memory(name: str) -> None:
    verdict = judge(ODD[name], seed=1)
    assert (verdict.kind, verdict.detail) == (SAME, "")
    assert verdict.schedules > 0


@pytest.mark.parametrize("end", [False, True])
def test_memory_around_an_array_cannot_be_read(end: bool) -> None:
    array = fenced(np.arange(5, dtype="int32"), end, 4)
    before, after = array.ctypes.data - 4, array.ctypes.data + 20

    def reading(address: int) -> Any:
        return lambda: str(np.ctypeslib.as_array((_INT * 1).from_address(address))[0])

    from ctypes import c_int32 as _INT

    steps = [reading(array.ctypes.data), reading(before), reading(after), lambda: "on"]
    inside, left, right, then = in_child(steps)
    assert (inside, then) == ("0", "on")
    assert (right if end else left) == "died of signal 11"
    assert (left if end else right) == "0"


# ---- The generator -------------------------------------------------------------------------------


def test_everything_is_drawn() -> None:
    drawn = [draw(3, number) for number in range(1500)]
    operands = [stage.operand for one in drawn for stage in one.stages]
    assert {operand.kind for operand in operands} == set(OPERANDS)
    assert {operand.guard for operand in operands} == {*GUARDS, *WHOLE}
    assert {stage.operation for one in drawn for stage in one.stages} == set(OPERATIONS)
    assert {one.kind for one in drawn} == set(KINDS)


def test_the_same_number_is_the_same_function() -> None:
    assert draw(1, 5) == draw(1, 5)
    assert draw(1, 5) != draw(2, 5)
    for number in range(50):
        one = draw(1, number)
        assert Function.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_sample_of_functions_is_scheduled_right() -> None:
    verdicts = [judge(draw(2, number), number) for number in (2, 3)]
    assert not [verdict for verdict in verdicts if verdict.kind in WRONG]
    assert [verdict.kind for verdict in verdicts].count(SAME) == 2
