"""What instructions would do in another order than TIR, or more or less often, is refused."""

from __future__ import annotations

import textwrap

import ml_dtypes
import numpy as np
import pytest
import tvm.script
from tvm import tirx
from tvm.script import tirx as T

from fuse_epilogue import neuron
from fuse_epilogue.kernels.trainium import ladder
from fuse_epilogue.neuron import EmitError
from fuse_epilogue.neuron.emit.linear import Linear
from fuse_epilogue.neuron.emit.order import check_order
from fuse_epilogue.neuron.emit.program import Number, Store, Tensor

MARKED_P = 'annotations={"nki_dim": "P"}'
MARKED_F = 'annotations={"nki_dim": "F"}'

#: x goes to t, then `BODY`, then r goes to y: r[i, j] of 8 rows and 16 columns.
TEXT = f"""
@T.prim_func(s_tir=True)
def main(x: T.Buffer((8, 16)), y: T.Buffer((8, COLUMNS))):
    t = T.sblock_alloc_buffer((8, 16), scope="trn.sbuf")
    q = T.sblock_alloc_buffer((8, 32), scope="trn.sbuf")
    r = T.sblock_alloc_buffer((8, COLUMNS), "TYPE", scope="trn.sbuf")
    for i, j in T.grid(8, 16):
        with T.sblock("load"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj]
    for i in T.serial(8, {MARKED_P}):
        for j in T.serial(16, {MARKED_F}):
            with T.sblock("c"):
                vi, vj = T.axis.remap("SKIND", [i, j])
                BODY
    for i, j in T.grid(8, COLUMNS):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.cast(r[vi, vj], "float32")
"""


def function(body: str, columns: int = 1, kind: str = "R", dtype: str = "float32") -> tirx.PrimFunc:
    lines = textwrap.indent(textwrap.dedent(body), " " * 16).strip()
    text = TEXT.replace("BODY", lines).replace("COLUMNS", str(columns))
    text = text.replace("SKIND", f"S{kind}").replace("TYPE", dtype)
    return tvm.script.from_source(text, extra_vars={"T": T})


def run(func: tirx.PrimFunc) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(-4, 5, (8, 16)).astype(np.float32)
    kernel = neuron.emit(func)
    kernel.check("trn1")
    return x, kernel(x)


def refused(func: tirx.PrimFunc, code: str, reason: str) -> None:
    with pytest.raises(EmitError, match=reason) as caught:
        neuron.emit(func)
    assert caught.value.code == code


SUM = "r[vi, 0] = r[vi, 0] + t[vi, vj]"
INIT = "with T.init():\n    r[vi, 0] = T.float32(0)\n"


def test_a_sum() -> None:
    x, y = run(function(INIT + SUM))
    np.testing.assert_array_equal(y[:, 0], x.sum(1))


@pytest.mark.parametrize(
    "begin",
    [
        "r[vi, 0] = T.float32(0)",
        "if vj == 2:\n    r[vi, 0] = T.float32(0)",
        "if vj == 15:\n    r[vi, 0] = T.float32(7)",
        "if vj < 4:\n    r[vi, 0] = T.float32(7)",
    ],
)
def test_a_sum_that_begins_otherwise(begin: str) -> None:
    refused(function(f"{begin}\n{SUM}"), "in-place", "'r' in several iterations")


@pytest.mark.parametrize(
    "update",
    [
        "r[vi, 0] = r[vi, 0] + r[vi, 0] * t[vi, vj]",
        "r[vi, 0] = T.max(r[vi, 0], T.float32(5) - r[vi, 0] - t[vi, vj])",
    ],
)
def test_an_addend_that_reads_the_sum(update: str) -> None:
    refused(function(INIT + update), "reduction", "depends on 'r', the sum so far")


def test_a_product_then_a_sum_over_a_loop_outside() -> None:
    """The twin: one step at a time, the sum may occur in what is added."""
    body = (
        "with T.init():\n    r[vi, vj] = t[vi, vj]\nr[vi, vj] = r[vi, vj] + r[vi, vj] * t[vi, vj]"
    )
    x, y = run(function(body, columns=16, kind="S"))
    np.testing.assert_array_equal(y, x + x * x)


def test_sums_that_round_in_every_step() -> None:
    body = INIT.replace("float32", "float16") + SUM.replace(
        "t[vi, vj]", 'T.cast(t[vi, vj], "float16")'
    )
    refused(function(body, dtype="float16"), "reduction", "rounds to float16 in every step")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("t[vi, vj] = T.float32(3)\nr[vi, vj] = t[vi, 15 - vj]", "reads other elements of 't'"),
        ("q[vi, 0] = t[vi, vj]\nr[vi, vj] = q[vi, 0]", "'q' in several iterations"),
        ("t[vi, vj] = t[vi, 15 - vj]\nr[vi, vj] = t[vi, vj]", "reads other elements of 't'"),
    ],
)
def test_assignments_that_depend_on_each_other(body: str, reason: str) -> None:
    refused(function(body, columns=16, kind="S"), "in-place", reason)


def test_assignments_of_one_element_each() -> None:
    body = "t[vi, vj] = t[vi, vj] * T.float32(2)\nr[vi, vj] = t[vi, vj] + T.float32(1)"
    x, y = run(function(body, columns=16, kind="S"))
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_overlapping_elements() -> None:
    body = "r[vi, vj // 2] = r[vi, vj // 2] + t[vi, vj]"
    refused(function(body, columns=16, kind="S"), "not-affine", "not a sum of the loops")


@pytest.mark.parametrize(("step", "reach"), [(1, 3), (2, 3)])
def test_windows_that_overlap(step: int, reach: int) -> None:
    """One element from two iterations of an instruction; the twin's windows stand side by side."""
    loops = {"j": 8, "f": reach}

    def store(step: int) -> list[Store]:
        tensor = Tensor("r", "sbuf", (8, 32), "float32")
        return [Store(tensor, (Linear({"j": step, "f": 1}),), Number(0.0, "float32"))]

    check_order(store(reach), loops, "c")
    with pytest.raises(EmitError, match="'r' in several iterations"):
        check_order(store(step), loops, "c")


def test_a_condition_inside_of_an_update() -> None:
    """T.init in a block, and an update only where a condition holds: the sub-range of columns."""
    body = """
    with T.init():
        r[vi, vj] = T.float32(1)
    if vj >= 3:
        r[vi, vj] = r[vi, vj] + t[vi, vj]
    """
    x, y = run(function(body, columns=16, kind="S"))
    np.testing.assert_array_equal(y, np.where(np.arange(16) >= 3, 1 + x, 1))


def test_names_of_copies_in_float32() -> None:
    """A tensor that is called as the copy of another one would be."""
    text = f"""
@T.prim_func(s_tir=True)
def main(x: T.Buffer((8, 16)), w: T.Buffer((8,), "bfloat16"), y: T.Buffer((8, 16))):
    s_f32 = T.sblock_alloc_buffer((8, 16), scope="trn.sbuf")
    s = T.sblock_alloc_buffer((8,), "bfloat16", scope="trn.sbuf")
    r = T.sblock_alloc_buffer((8, 16), scope="trn.sbuf")
    for i, j in T.grid(8, 16):
        with T.sblock("load"):
            vi, vj = T.axis.remap("SS", [i, j])
            s_f32[vi, vj] = x[vi, vj]
    for i in range(8):
        with T.sblock("scale"):
            vi = T.axis.remap("S", [i])
            s[vi] = w[vi]
    for i in T.serial(8, {MARKED_P}):
        for j in T.serial(16, {MARKED_F}):
            with T.sblock("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                r[vi, vj] = s_f32[vi, vj] * T.cast(s[vi], "float32")
    for i, j in T.grid(8, 16):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = r[vi, vj]
"""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (8, 16)).astype(np.float32)
    w = rng.integers(-4, 5, 8).astype(ml_dtypes.bfloat16)
    kernel = neuron.emit(tvm.script.from_source(text, extra_vars={"T": T}))
    np.testing.assert_array_equal(kernel(x, w), x * w.astype(np.float32)[:, None])


@pytest.mark.parametrize("name", ["", "class", "my kernel", "a.b", "nl", "main; import os"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="name must be one that a function of Python may have"):
        neuron.emit(function(INIT + SUM), name=name)


def test_a_name_that_a_parameter_has() -> None:
    with pytest.raises(ValueError, match="'x' is a parameter's name"):
        neuron.emit(function(INIT + SUM), name="x")


def test_two_loops_over_partitions_and_no_such_engine() -> None:
    text = function(INIT + SUM)
    sch = tvm.s_tir.Schedule(text)
    sch.annotate(sch.get_sblock("c"), "nki_engine", "foo")
    refused(sch.mod["main"], "engine", "no engine 'foo'")
    sch = tvm.s_tir.Schedule(text)
    loop = sch.get_loops("c")[1]
    sch.unannotate(loop, "nki_dim")
    sch.annotate(loop, "nki_dim", "P")
    refused(sch.mod["main"], "marks", 'two loops are marked "P"')


@pytest.mark.parametrize("step", [-1, 7, "3", 2.5, None])
def test_steps_that_there_are_not(step: object) -> None:
    with pytest.raises(ValueError, match="step must be from 0 to 6"):
        ladder.schedule(step)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [(4, 3), (4, 0), (0, 4), (5, 129)])
def test_columns_that_are_not_merged(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="merged must be one of"):
        ladder.schedule(*arguments)
