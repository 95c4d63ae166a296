"""Every accepting program of the corpus is fused, completely, and computes what it did before."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.analysis import get_sblock_read_write_region, verify_well_formed
from tvm.s_tir.schedule.testing import (
    assert_structural_equal_ignore_global_symbol,
    verify_trace_roundtrip,
)
from tvm.tirx import PrimFunc

import fuse_epilogue
from oracles import Builds, check_fused, check_unfused, fuse, fused
from programs import ACCEPT, BY_NAME, EITHER, Case


def each(cases: list[Case]) -> Any:
    """Run a test once for every case."""
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in cases])


def collect(node: Any, kind: type) -> list[Any]:
    """Everything of one kind inside a function or statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, [(kind, lambda inner: found.append(inner))])
    return found


def blocks(func: PrimFunc) -> dict[str, s_tir.SBlock]:
    """The blocks of `func` by name."""
    return {block.name_hint: block for block in collect(func, s_tir.SBlock)}


def buffers(func: PrimFunc) -> dict[str, tirx.Var]:
    """All buffers of `func` by name: parameters, and those that some block allocates."""
    found = [param for param in func.params if isinstance(param.ty, tirx.BufferType)]
    for block in blocks(func).values():
        found.extend(block.alloc_buffers)
    names = [buffer.name for buffer in found]
    assert len(set(names)) == len(names), f"two buffers have one name: {names}"
    return dict(zip(names, found, strict=True))


def test_names_are_unique() -> None:
    names = [case.name for case in (*ACCEPT, *EITHER)]
    assert len(set(names)) == len(names)


@each([case for case in ACCEPT if case.twin])
def test_has_a_refusing_twin(case: Case) -> None:
    assert BY_NAME[case.twin].refused


def test_every_code_belongs_to_one_kind() -> None:
    assert not [case.name for case in ACCEPT if case.codes or case.either]
    assert not [case.name for case in EITHER if not case.either]


@each([*ACCEPT, *EITHER])
def test_unfused_program_is_what_its_reference_says(case: Case, builds: Builds) -> None:
    check_unfused(case, builds[case.name])


@pytest.mark.cpp
@each(ACCEPT)
def test_is_fused_completely(case: Case) -> None:
    before = case.scheduled().mod["main"]
    sch, report = fused(case.name)
    after = sch.mod["main"]
    verify_well_formed(after)

    gone = set(case.epilogues) - set(case.tails)
    assert set(blocks(after)) == set(blocks(before)) - gone
    # Every block that is gone takes a buffer with it, and not only the buffer's declaration.
    there, left = set(buffers(before)), set(buffers(after))
    if case.local:
        assert str(buffers(after)[report.output].ty.storage_scope) == "local"
        left = left - {report.output} | {report.output.removesuffix("_local")}
    assert left <= there
    assert len(there - left) == len(gone)
    assert there - left <= {var.name for var in collect(before, tirx.Var)}
    assert not (there - left) & {var.name for var in collect(after, tirx.Var)}
    assert set(case.kept) <= left

    assert report.fusable
    assert report.reduction == case.reduction
    assert report.numerics == case.numerics
    assert [w.source.name for w in blocks(after)[case.reduction].writes] == [report.output]
    assert [step.epilogue for step in report.steps] == list(case.epilogues)
    assert sorted(step.removed for step in report.steps if step.removed) == sorted(there - left)
    assert report.kept == case.kept


@each(ACCEPT)
def test_report_names_what_became_of_each_epilogue(case: Case) -> None:
    _, report = fused(case.name)
    for step in report.steps:
        assert case.distributed.get(step.epilogue, "") in step.distributed
        assert bool(step.distributed) == (step.epilogue in case.distributed)
        assert case.tails.get(step.epilogue, "") in step.tail
        assert bool(step.tail) == bool(step.reason) == (step.epilogue in case.tails)
    later = case.epilogues
    for step in report.steps:
        later = later[1:]
        assert not step.merged_into or step.merged_into in later
        assert not (step.merged_into and step.tail)
    for step, absorbed in zip(report.steps, case.absorbed, strict=True):
        assert absorbed in step.absorbed
        assert bool(absorbed) == bool(step.absorbed)


@each(ACCEPT)
def test_report_in_words(case: Case) -> None:
    _, report = fused(case.name)
    if case.stopped is None:
        assert report.stopped is None
    else:
        assert report.stopped.code == case.stopped
        assert report.stopped.block in blocks(case.func)
        assert report.stopped.message
    lines = str(report).splitlines()
    assert len(lines) == len(case.epilogues) + len(case.kept) + (case.stopped is not None)
    for line, name in zip(lines, case.epilogues, strict=False):
        assert f"'{name}'" in line


@each([case for case in ACCEPT if case.init])
def test_init_holds_the_absorbed_terms(case: Case) -> None:
    sch, _ = fused(case.name)
    assert str(blocks(sch.mod["main"])[case.reduction].init.value) == case.init


@each(ACCEPT)
def test_declared_regions_are_the_accessed_ones(case: Case) -> None:
    sch, _ = fused(case.name)
    after = sch.mod["main"]
    in_scope = {buffer: buffer for buffer in buffers(after).values()}
    before = blocks(case.scheduled().mod["main"])
    for name in (case.reduction, *case.tails):
        block = blocks(after)[name]
        if tvm_ffi.structural_equal(block, before[name], map_free_vars=True):
            continue  # as the program declares them
        reads, writes = get_sblock_read_write_region(block, in_scope)
        # An initial value that loads the output itself is a read that the recomputation leaves
        # out, as it does the accumulator's.
        loaded = collect(block.init, tvm.ir.TensorLoad) if block.init is not None else []
        if any(load.source.same_as(block.writes[0].source) for load in loaded):
            reads = [*reads, *block.writes]
        assert sorted(map(str, block.reads)) == sorted(map(str, reads))
        assert sorted(map(str, block.writes)) == sorted(map(str, writes))
        assert len(block.writes) == 1


def check_calls(case: Case, calls: tuple[str, ...]) -> None:
    for call in calls:
        sch, reports = fuse(case, call)
        tvm.ir.assert_structural_equal(sch.mod, fused(case.name)[0].mod)
        # A call names its own epilogue last, after earlier ones that it has merged into it.
        by_call = [r.steps[-1:] if "pair" in call else r.steps for r in reports]
        assert [step.epilogue for steps in by_call for step in steps] == list(case.epilogues), call
        merged = [step for r in reports for step in r.steps[:-1] if "pair" in call]
        assert all(step.merged_into for step in merged), call


@each(ACCEPT)
def test_the_epilogue_stands_for_the_reduction(case: Case) -> None:
    check_calls(case, ("epilogue",))


@each([case for case in ACCEPT if case.one_by_one])
def test_one_by_one_does_the_same(case: Case) -> None:
    check_calls(case, ("pair",))


@each([case for case in ACCEPT if case.one_by_one][::10])
def test_every_way_to_write_a_pair_does_the_same(case: Case) -> None:
    check_calls(case, ("pair by variable", "pair by keyword"))


@each(ACCEPT)
def test_computes_the_same(case: Case, builds: Builds) -> None:
    assert f"{case.name}_fused" in builds, f"{case.name} has not been fused"
    check_fused(case, builds[case.name], builds[f"{case.name}_fused"])


@each(ACCEPT)
def test_trace_replays(case: Case) -> None:
    sch, _ = fused(case.name)
    fresh = s_tir.Schedule(case.func, debug_mask="all")
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    tvm.ir.assert_structural_equal(fresh.mod, sch.mod)
    verify_trace_roundtrip(sch, case.func)


@pytest.mark.cpp
@each(EITHER)
def test_is_refused_or_computes_the_same(case: Case, builds: Builds) -> None:
    sch = case.scheduled()
    before = sch.mod
    try:
        sch.fuse_reduction_epilogue(case.reduction, **case.options)
    except s_tir.ScheduleError as error:
        assert fuse_epilogue.refusal_code(error) in case.codes
        assert sch.mod.same_as(before)
    else:
        check_fused(case, builds[case.name], builds[f"{case.name}_fused"])


@pytest.mark.cpp
def test_each_function_of_a_module_by_itself() -> None:
    functions = {"one": BY_NAME["two_blocks"], "other": BY_NAME["in_place"]}
    mod = tvm.IRModule(
        {name: c.func.with_attr("global_symbol", name) for name, c in functions.items()}
    )
    sch = s_tir.Schedule(mod, debug_mask="all")
    for name in functions:
        sch.work_on(name)
        sch.fuse_reduction_epilogue("mm")
    for name, case in functions.items():
        assert_structural_equal_ignore_global_symbol(sch.mod[name], fuse(case)[0].mod["main"])


@pytest.mark.cpp
def test_on_a_copy_and_without_a_trace() -> None:
    case = BY_NAME["two_blocks"]
    original = case.scheduled()
    copy = original.copy()
    copy.fuse_reduction_epilogue("mm")
    tvm.ir.assert_structural_equal(original.mod, case.scheduled().mod)

    untraced = s_tir.Schedule._create_non_traced(case.func, debug_mask="all")
    untraced.fuse_reduction_epilogue("mm")
    assert untraced.trace is None
    for sch in (copy, untraced):
        tvm.ir.assert_structural_equal(sch.mod, fuse(case)[0].mod)
