"""rfactor and threads over a reduction that has absorbed an epilogue: it is combined once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import cuda_on_cpu
from cuda_programs import needs_gxx
from cuda_runs import on_machines
from fuse_epilogue import workloads
from oracles import compile_together

pytestmark = pytest.mark.cpp

ROWS, KEYS = 6, 8


def reduced(
    reduce: Callable[..., Any], combine: Callable[[Any, Any], Any], dtype: str = "float32"
) -> tirx.PrimFunc:
    """A reduction of rows, combined with an element for each row."""
    a = te.placeholder((ROWS, KEYS), dtype, name="a")
    c = te.placeholder((ROWS,), dtype, name="c")
    k = te.reduce_axis((0, KEYS), "k")
    r = te.compute((ROWS,), lambda i: reduce(a[i, k], axis=k), name="r")
    y = te.compute((ROWS,), lambda i: combine(r[i], c[i]), name="y")
    return te.create_prim_func([a, c, y])


def maximum_from(start: float) -> Callable[..., Any]:
    return te.comm_reducer(lambda a, b: te.max(a, b), lambda dtype: tirx.const(start, dtype))


def product(x: Any, axis: Any) -> Any:
    return te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype))(x, axis=axis)


#: Name: function, block of the reduction, what numpy computes.
PROGRAMS: dict[str, tuple[Callable[[], tirx.PrimFunc], str, Callable[..., np.ndarray]]] = {
    "product of matrices": (
        lambda: workloads.matmul(6, 5, KEYS),
        "matmul",
        lambda a, b, bias: a @ b + bias,
    ),
    "sum": (lambda: reduced(te.sum, lambda r, c: r + c), "r", lambda a, c: a.sum(1) + c),
    "sum of integers": (
        lambda: reduced(te.sum, lambda r, c: r + c, "int32"),
        "r",
        lambda a, c: a.sum(1) + c,
    ),
    "product of integers": (
        lambda: reduced(product, lambda r, c: r * c, "int32"),
        "r",
        lambda a, c: a.prod(1) * c,
    ),
    "maximum of integers": (
        lambda: reduced(te.max, lambda r, c: te.max(r, c), "int32"),
        "r",
        lambda a, c: np.maximum(a.max(1), c),
    ),
    "minimum": (
        lambda: reduced(te.min, lambda r, c: te.min(c, r)),
        "r",
        lambda a, c: np.minimum(a.min(1), c),
    ),
    "maximum from a literal": (
        lambda: reduced(te.max, lambda r, _: te.max(r, tirx.const(2.0, "float32"))),
        "r",
        lambda a, _: np.maximum(a.max(1), np.float32(2)),
    ),
}


def fused(name: str) -> tuple[Schedule, str]:
    make, block, _ = PROGRAMS[name]
    sch = Schedule(make(), debug_mask="all")
    report = sch.fuse_reduction_epilogue(block)
    assert any(step.absorbed for step in report.steps), report
    return sch, block


def reduction_loops(sch: Schedule, block: str) -> list[Any]:
    loop = sch.get_loops(sch.get_sblock(block))[-1]
    return list(sch.split(loop, [None, 4]))


#: Which of the two reduction loops rfactor is called with.
PARTS = {"outer": 0, "inner": 1}


def factored(name: str, part: str) -> Schedule:
    sch, block = fused(name)
    sch.rfactor(reduction_loops(sch, block)[PARTS[part]], 0)
    return sch


def arrays_of(func: tirx.PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.integers(-4, 5, [int(size) for size in param.ty.shape]).astype(str(param.ty.dtype))
        for param in func.params
    ]


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    functions = {name: make() for name, (make, _, _) in PROGRAMS.items()}
    for name in PROGRAMS:
        for part in PARTS:
            functions[f"{name}, {part}"] = factored(name, part).mod["main"]
    named = {f"f{place}": func for place, func in enumerate(functions.values())}
    compiled = compile_together(named)
    return {key: compiled[f"f{place}"] for place, key in enumerate(functions)}


def run(function: Any, arrays: list[np.ndarray]) -> np.ndarray:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    function(*tensors)
    return np.asarray(tensors[-1].numpy())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rfactor_is_right_bit_for_bit(name: str, part: str, built: dict[str, Any]) -> None:
    make, _, formula = PROGRAMS[name]
    arrays = arrays_of(make())
    right = formula(*arrays[:-1]).astype(arrays[-1].dtype)
    for which in (name, f"{name}, {part}"):
        np.testing.assert_array_equal(run(built[which], arrays), right, err_msg=which)


@pytest.mark.parametrize("name", PROGRAMS)
def test_partials_start_from_the_identity_and_the_rest_from_the_epilogue(name: str) -> None:
    sch, block = fused(name)
    start = sch.get(sch.get_sblock(block)).init.value
    partials = sch.rfactor(reduction_loops(sch, block)[0], 0)
    init = sch.get(partials).init.value
    assert isinstance(init, tvm.ir.prim.IntImm | tvm.ir.prim.FloatImm)
    tvm.ir.assert_structural_equal(
        sch.get(sch.get_sblock(block)).init.value, start, map_free_vars=True
    )


@pytest.mark.parametrize("steps", ["rfactor", "bind"])
def test_replays_from_json(steps: str) -> None:
    sch, block = fused("product of matrices")
    loops = reduction_loops(sch, block)
    if steps == "rfactor":
        sch.rfactor(loops[0], 0)
    else:
        sch.bind(loops[1], "threadIdx.x")
    assert sch.trace is not None
    copy = Schedule(workloads.matmul(6, 5, KEYS))
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), copy)
    tvm.ir.assert_structural_equal(copy.mod, sch.mod)


def test_a_maximum_that_may_start_from_an_infinity_is_left_to_tvm() -> None:
    """TVM's identity, the lowest finite value, would take the place of -inf."""
    sch = Schedule(reduced(maximum_from(-np.inf), lambda r, c: te.max(r, c)), debug_mask="all")
    sch.fuse_reduction_epilogue("r")
    loop = reduction_loops(sch, "r")[0]
    before, steps = sch.mod, str(sch.trace)
    with pytest.raises(s_tir.ScheduleError):
        sch.rfactor(loop, 0)
    assert sch.mod.same_as(before)
    assert str(sch.trace) == steps


def test_a_call_that_tvm_refuses_changes_nothing() -> None:
    sch, block = fused("product of matrices")
    loop = sch.get_loops(sch.get_sblock(block))[0]
    before, steps = sch.mod, str(sch.trace)
    with pytest.raises(s_tir.ScheduleError):
        sch.rfactor(loop, 0)  # It is spatial.
    assert sch.mod.same_as(before)
    assert str(sch.trace) == steps


def on_threads(name: str, activation: str | None = None) -> tirx.PrimFunc:
    if activation is None:
        sch, block = fused(name)
    else:
        sch, block = Schedule(workloads.matmul(6, 5, KEYS, activation=activation)), "matmul"
        sch.fuse_reduction_epilogue(block)
    *spatial, _ = sch.get_loops(sch.get_sblock(block))
    _, inner = reduction_loops(sch, block)
    sch.bind(sch.fuse(*spatial), "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    if activation is not None:
        sch.set_scope(f"{block}_from_init", 0, "local")
    return sch.mod["main"]


@on_machines
@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_are_right_bit_for_bit(name: str, machine: Any) -> None:
    make, _, formula = PROGRAMS[name]
    arrays = arrays_of(make())
    right = formula(*arrays[:-1]).astype(arrays[-1].dtype)
    np.testing.assert_array_equal(run(machine(on_threads(name)), arrays), right)


@on_machines
def test_threads_with_a_tail_after_the_bias(machine: Any) -> None:
    arrays = arrays_of(workloads.matmul(6, 5, KEYS))
    a, b, bias, _ = arrays
    found = run(machine(on_threads("product of matrices", "relu")), arrays)
    np.testing.assert_array_equal(found, np.maximum(a @ b + bias, 0))


def names(sch: Schedule) -> list[str]:
    """The blocks in the root block."""
    return [str(sch.get(b).name_hint) for b in sch.get_child_blocks(sch.get_sblock("root"))]


def test_bind_of_other_loops_and_of_identities_is_tvms() -> None:
    sch, block = fused("product of matrices")
    sch.bind(sch.get_loops(sch.get_sblock(block))[0], "threadIdx.x")
    assert names(sch) == ["matmul"]
    unfused = Schedule(workloads.matmul(6, 5, KEYS))
    before = names(unfused)
    unfused.bind(unfused.get_loops(unfused.get_sblock("matmul"))[-1], "threadIdx.x")
    assert names(unfused) == before


@needs_gxx
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("keys", "rows"), [(64, 2), (45, 2), (128, 1)])
def test_every_thread_adds_the_bias_once_in_registers(keys: int, rows: int, before: bool) -> None:
    """TVM gives buffers of one scope one memory, here that in which so many threads add."""
    sch = Schedule(workloads.matmul(6, 5, keys, activation="relu"))
    sch.fuse_reduction_epilogue("matmul")
    if before:
        sch.set_scope("matmul", 0, "local")
    *spatial, _ = sch.get_loops("matmul")
    blocks, threads = sch.split(sch.fuse(*spatial), [None, rows])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.y")
    sch.bind(sch.get_loops("matmul")[-1], "threadIdx.x")
    if not before:
        sch.set_scope("matmul_from_init", 0, "local")
    a, b, bias, y = arrays_of(sch.mod["main"])
    cuda_on_cpu.build(sch.mod)(a, b, bias, y)
    np.testing.assert_array_equal(y, np.maximum(a @ b + bias, 0))


def test_spatial_loops_inside_of_the_reduction_are_left_to_tvm() -> None:
    sch, block = fused("product of matrices")
    i, j, k = sch.get_loops(sch.get_sblock(block))
    sch.reorder(i, k, j)
    sch.bind(k, "threadIdx.x")
    assert names(sch) == ["matmul"]


@T.prim_func(s_tir=True)
def in_place(a: T.Buffer((ROWS, KEYS), "float32"), y: T.Buffer((ROWS,), "float32")):
    r = T.sblock_alloc_buffer((ROWS,), "float32")
    for i, k in T.grid(ROWS, KEYS):
        with T.sblock("r"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                r[vi] = T.float32(0)
            r[vi] += a[vi, vk]
    for i in range(ROWS):
        with T.sblock("y"):
            vi = T.axis.spatial(ROWS, i)
            y[vi] = r[vi] + y[vi]


def test_an_init_that_reads_the_output_is_left_to_tvm() -> None:
    """Every thread would add to the output; rfactor adds once."""
    sch = Schedule(in_place)
    assert sch.fuse_reduction_epilogue("r").steps[0].absorbed
    sch.bind(sch.get_loops(sch.get_sblock("r"))[-1], "threadIdx.x")
    assert names(sch) == ["r"]
    sch = Schedule(in_place, debug_mask="all")
    sch.fuse_reduction_epilogue("r")
    sch.rfactor(reduction_loops(sch, "r")[0], 0)
    a, y = arrays_of(in_place)
    found = run(compile_together({"in_place": sch.mod["main"]})["in_place"], [a, y])
    np.testing.assert_array_equal(found, a.sum(1) + y)
