"""Certificates of later calls, which find tails of an earlier one behind the reduction."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from certified import Certified, mapped, realized, top_level
from fuse_epilogue.verify import CertificateError, check
from programs import BY_NAME

CHAIN = "two_outputs"  # D = f(A @ x) is read again: F = 3 D


def later() -> Certified:
    """The call that fuses the second epilogue of a chain, behind the tail of the first."""
    case = BY_NAME[CHAIN]
    sch = case.scheduled()
    first, second = case.epilogues
    sch.fuse_reduction_epilogue(case.reduction, first, **case.options)
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue(case.reduction, second, **case.options)
    assert [tail.name for tail in report.certificate.tails] == [second]
    return Certified(before, sch.mod["main"], report.certificate)


def refused(given: Certified, claim: str) -> None:
    with pytest.raises(CertificateError) as caught:
        check(given.before, given.after, given.certificate)
    assert caught.value.claim == claim, caught.value


def has_three(seq: tirx.SeqStmt) -> bool:
    return len(seq.seq) == 3


def swapped(seq: tirx.SeqStmt) -> tirx.SeqStmt:
    reduction, first, second = seq.seq
    return tirx.SeqStmt([reduction, second, first])


def test_a_tail_behind_a_tail_of_an_earlier_call() -> None:
    given = later()
    check(given.before, given.after, given.certificate)


def test_a_tail_in_front_of_what_it_reads() -> None:
    refused(later().storing(mapped(tirx.SeqStmt, swapped, has_three)), "order")


def test_a_tail_of_another_element() -> None:
    """The earlier tail goes through its rows backwards, so that the later one comes too early."""
    backwards = realized(
        BY_NAME[CHAIN].epilogues[0],
        lambda r: type(r)([r.block.iter_vars[0].dom.extent - 1 - r.iter_values[0]], True, r.block),
    )
    refused(later().both(backwards), "order")


def tiled() -> Certified:
    """A block in tiles behind the reduction, and an epilogue that reads what it stores."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((3, 3, 4), "int32"), D: T.Buffer((9,), "int32"), E: T.Buffer((9,), "int32")
    ):
        temp = T.sblock_alloc_buffer((3, 3), "int32")
        for i in range(3):
            for k, j in T.grid(4, 3):
                with T.sblock("red"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        temp[vi, vj] = 0
                    temp[vi, vj] = temp[vi, vj] | A[vi, vj, vk]
            for j in range(3):
                with T.sblock("first"):
                    v = T.axis.spatial(9, i * 3 + j)
                    D[v] = ~temp[v // 3, v % 3]
        for i in range(9):
            with T.sblock("second"):
                v = T.axis.spatial(9, i)
                E[v] = D[v] * D[v]

    sch = tvm.s_tir.Schedule(func)
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue("red")
    return Certified(before, sch.mod["main"], report.certificate)


def test_a_tail_that_reads_what_a_tile_before_it_stores() -> None:
    given = tiled()
    check(given.before, given.after, given.certificate)


def test_a_tail_that_reads_what_another_tile_stores() -> None:
    """The tiles are stored in the opposite order: the tail would read one that comes later."""
    backwards = realized("first", lambda r: type(r)([6 - r.iter_values[0] + 2], True, r.block))
    refused(tiled().both(backwards), "order")


def test_others_between_a_reduction_and_a_late_tail() -> None:
    """The reduction stands where it was; only the tail comes behind what overwrites its output."""
    given = later()
    output = given.certificate.tails[0].output
    zero = tirx.IntImm("int32", 0)
    work = tirx.BufferStore(output, tirx.IntImm("int32", 7), [zero])

    def late(parts: list[Any]) -> list[Any]:
        (loop,) = parts
        reduction, first, second = loop.body.seq
        var = tirx.Var("i_late", loop.loop_var.ty)
        moved = tvm_ffi.structural_map(
            second, (type(var), lambda v: var if v.same_as(loop.loop_var) else v)
        )
        again = tirx.For(var, loop.min, loop.extent, loop.kind, moved)
        body = tirx.SeqStmt([reduction, first])
        kept = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
        return [kept, work, again]

    def behind(func: PrimFunc) -> PrimFunc:
        return top_level(lambda parts: [*parts, work])(func)

    refused(
        Certified(behind(given.before), top_level(late)(given.after), given.certificate), "order"
    )


def copied() -> Certified:
    """An epilogue that writes tiles to shared memory, and a block that copies each tile from it."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((8, 4), "int32"), C: T.Buffer((8, 8), "int32"), D: T.Buffer((8, 8), "int32")
    ):
        temp = T.sblock_alloc_buffer((8, 8), "int32")
        for i, j, k in T.grid(8, 8, 4):
            with T.sblock("red"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] = temp[vi, vj] + A[vi, vk] * A[vj, vk]
        for i, j in T.grid(8, 8):
            with T.sblock("epi"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = T.max(temp[vi, vj] + C[vi, vj], 0)

    sch = tvm.s_tir.Schedule(func)
    epilogue = sch.get_sblock("epi")
    outer, _ = sch.split(sch.get_loops(epilogue)[0], [4, 2])
    sch.write_at(outer, epilogue, 0, "shared")
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue("red")
    return Certified(before, sch.mod["main"], report.certificate)


def test_a_tile_that_is_copied_when_all_are_computed() -> None:
    given = copied()
    check(given.before, given.after, given.certificate)


def test_a_copy_of_another_tile() -> None:
    """Before, it reads what the next iteration writes: it would see something else after."""

    def next_row(load: Any) -> Any:
        row, column = load.indices
        return tirx.BufferLoad(load.source, [tirx.floormod(row + 2, 8), column])

    shift = mapped(TensorLoad, next_row, lambda load: load.source.name == "D_shared")
    refused(copied().both(shift), "order")


def test_a_copy_that_comes_first() -> None:
    given = copied().storing(top_level(lambda parts: parts[::-1]))
    with pytest.raises(CertificateError):
        check(given.before, given.after, given.certificate)


def read_elsewhere() -> Certified:
    """A block after the reduction's nest is a tail already; what it stores is read elsewhere."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((8, 4), "int32"), C: T.Buffer((8,), "int32"), E: T.Buffer((8,), "int32"),
        D: T.Buffer((8,), "int32"),
    ):  # fmt: skip
        temp = T.sblock_alloc_buffer((8,), "int32")
        copy = T.sblock_alloc_buffer((8,), "int32")
        for k, i in T.grid(4, 8):
            with T.sblock("red"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(8):
            with T.sblock("copy"):
                vi = T.axis.spatial(8, i)
                copy[vi] = temp[vi]
        for i in range(8):
            with T.sblock("partly"):
                vi = T.axis.spatial(8, i)
                T.where(i < 3)
                E[vi] = copy[vi] * 2
        scaled = T.sblock_alloc_buffer((8,), "int32")
        for i in range(8):
            with T.sblock("scaled"):
                vi = T.axis.spatial(8, i)
                scaled[vi] = T.max(temp[vi], 0)
        for i in range(8):
            with T.sblock("epi"):
                vi = T.axis.spatial(8, i)
                D[vi] = T.min(scaled[vi] + C[vi], temp[vi])

    sch = tvm.s_tir.Schedule(func)
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue("red", numerics="exact", distribute=True)
    assert [step.epilogue for step in report.steps] == ["scaled", "epi"]
    return Certified(before, sch.mod["main"], report.certificate)


def test_what_a_block_left_alone_stores_is_no_intermediate() -> None:
    given = read_elsewhere()
    assert "copy" not in [var.name for var in given.certificate.kept]
    check(given.before, given.after, given.certificate)
    copy = given.buffer("copy")
    refused(given.claiming(kept=(*given.certificate.kept, copy)), "kept")
