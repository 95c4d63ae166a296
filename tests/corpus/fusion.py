"""A fusion is complete: blocks, buffers, regions, the report, and T.init."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir.analysis import get_sblock_read_write_region, verify_well_formed
from tvm.tirx import PrimFunc

from programs import BY_NAME

from .subject import Steps, Subject

FUSION = Steps()


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


@FUSION.step(lambda subject: bool(subject.case.twin))
def has_a_refusing_twin(subject: Subject) -> None:
    assert BY_NAME[subject.case.twin].refused


@FUSION.step()
def is_fused_completely(subject: Subject) -> None:
    case, report = subject.case, subject.fused.report
    before, after = subject.before, subject.fused.after
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


@FUSION.step()
def report_names_what_became_of_each_epilogue(subject: Subject) -> None:
    case, report = subject.case, subject.fused.report
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


@FUSION.step()
def report_in_sentences(subject: Subject) -> None:
    case, report = subject.case, subject.fused.report
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


@FUSION.step(lambda subject: bool(subject.case.init))
def init_holds_the_absorbed_terms(subject: Subject) -> None:
    case = subject.case
    assert str(blocks(subject.fused.after)[case.reduction].init.value) == case.init


@FUSION.step()
def declared_regions_are_the_accessed_ones(subject: Subject) -> None:
    case, after = subject.case, subject.fused.after
    in_scope = {buffer: buffer for buffer in buffers(after).values()}
    before = blocks(subject.before)
    for name in (case.reduction, *case.tails):
        block = blocks(after)[name]
        if tvm_ffi.structural_equal(block, before[name], map_free_vars=True):
            continue  # as the program declares them
        reads, writes = get_sblock_read_write_region(block, in_scope)
        # An initial value that loads the output itself is a read that the recomputation leaves
        # out, as it does the accumulator's.
        loaded = collect(block.init, ir.TensorLoad) if block.init is not None else []
        if any(load.source.same_as(block.writes[0].source) for load in loaded):
            reads = [*reads, *block.writes]
        assert sorted(map(str, block.reads)) == sorted(map(str, reads))
        assert sorted(map(str, block.writes)) == sorted(map(str, writes))
        assert len(block.writes) == 1
