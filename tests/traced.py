"""Programs whose fusions are recorded and replayed, and how: for the tests of traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule, Trace
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fused_block import blocks


def program(
    rows: int = 8,
    columns: int = 12,
    depth: int = 6,
    epilogue: Callable[..., Any] | None = None,
    dtype: str = "int32",
) -> PrimFunc:
    """A product, a bias made by a block of its own, and a residual; the same blocks at any size."""
    last = epilogue or (lambda biased, residual, i, j: biased[i, j] + residual[i, j])
    zero, one, three = (tirx.const(value, dtype) for value in (0, 1, 3))

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((rows, depth), "int8"),
        B: T.Buffer((columns, depth), "int8"),
        E: T.Buffer((columns,), dtype),
        R: T.Buffer((rows, columns), dtype),
        D: T.Buffer((rows, columns), dtype),
    ):
        C = T.sblock_alloc_buffer((columns,), dtype)
        temp = T.sblock_alloc_buffer((rows, columns), dtype)
        biased = T.sblock_alloc_buffer((rows, columns), dtype)
        for j in range(columns):
            with T.sblock("bias"):
                vj = T.axis.spatial(columns, j)
                C[vj] = E[vj] * three + one
        for i, j, k in T.grid(rows, columns, depth):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = zero
                temp[vi, vj] += T.Cast(dtype, A[vi, vk]) * T.Cast(dtype, B[vj, vk])
        for i, j in T.grid(rows, columns):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                biased[vi, vj] = temp[vi, vj] + C[vj]
        for i, j in T.grid(rows, columns):
            with T.sblock("residual"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = last(biased, R, vi, vj)

    return main


def relu(biased: Any, residual: Any, i: Any, j: Any) -> Any:
    return T.max(biased[i, j], residual[i, j])


def with_its_mirror(biased: Any, residual: Any, i: Any, j: Any) -> Any:
    return biased[i, j] + biased[7 - i, j] + residual[i, j]


def scaled(biased: Any, residual: Any, i: Any, j: Any) -> Any:
    return biased[i, j] * residual[i, j]


PROGRAM = program()
# The same blocks. The bias is absorbed, the rest is left as a tail.
WITH_RELU = program(epilogue=relu)
# Only the bias can be fused: the last block needs two elements that are not finished together.
WITH_MIRROR = program(epilogue=with_its_mirror)
# In these it matters what the call allows: to reorder the sum, and to scale each of its terms.
FLOATS = program(dtype="float32")
SCALED = program(dtype="float32", epilogue=scaled)


def schedule(func: PrimFunc = PROGRAM) -> Schedule:
    return Schedule(func, debug_mask="all")


def names_of_blocks(sch: Schedule) -> list[str]:
    """The names of all blocks but the root; nothing is recorded on the trace."""
    return list(blocks(sch.mod["main"]))


def replayed(sch: Schedule, func: PrimFunc = PROGRAM) -> Schedule:
    """The trace of `sch` on a fresh schedule of `func`, by way of JSON text."""
    stored = json.dumps(json.loads(tvm.ir.save_json(sch.trace.as_json())))
    fresh = schedule(func)
    Trace.apply_json_to_schedule(tvm.ir.load_json(stored), fresh)
    return fresh


def scheduled_on(func: PrimFunc) -> Schedule:
    """The fusion among other steps, some of them on the fused block's loops."""
    sch = schedule(func)
    block = sch.get_sblock("mm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i, j0, k, j1)
    sch.fuse_reduction_epilogue(block)
    sch.compute_at(sch.get_sblock("bias"), j0)
    init = sch.decompose_reduction(block, k)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.unroll(k)
    return sch
