"""Every program again with its first epilogue bent by a ReLU, so that something of it is left.

What makes a fusion unsound does so for a tail as well; what does not, must not be in its way.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
import tvm_ffi
from tvm import s_tir, tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import fuse_epilogue
from oracles import Builds, assert_same_bits, make_inputs, run
from programs import (
    EITHER,
    REFUSE,
    Case,
    layouts,
    readers,
    scheduled,
    shapes,
    sums,
    terms,
)


def bent(func: PrimFunc, name: str) -> PrimFunc:
    """`func` with ``max(value, 0)`` in place of every value that block `name` stores."""

    def bend(store: tirx.BufferStore) -> tirx.BufferStore:
        value = T.max(store.value, T.cast(0, store.value.ty.dtype))
        return tirx.BufferStore(store.buffer, value, store.indices)

    def enter(block: s_tir.SBlock) -> s_tir.SBlock:
        if block.name_hint != name:
            return block
        body = tvm_ffi.structural_map(block.body, [(tirx.BufferStore, bend)])
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    return tvm_ffi.structural_map(func, [(s_tir.SBlock, enter)])


def bent_case(case: Case) -> Case:
    return replace(
        case, name=f"{case.name}_bent", func=bent(case.func, case.epilogues[0]), reference=None
    )


def has_the_epilogue(case: Case) -> bool:
    names: set[str] = set()
    tvm_ffi.structural_walk(case.func, [(s_tir.SBlock, lambda b: names.add(b.name_hint))])
    return case.epilogues[0] in names and case.reduction in names


ACCEPTED = [
    bent_case(case)
    for family in (terms, sums, layouts, shapes, scheduled, readers)
    for case in family.ACCEPT
    if has_the_epilogue(case)
]
# Refused where the output takes the place of the accumulator. Behind a tail it stays where it is.
ABSORBING_ONLY = {"storage-align"}
REFUSED = [
    bent_case(case)
    for case in REFUSE
    if not case.calls and has_the_epilogue(case) and ABSORBING_ONLY.isdisjoint(case.codes)
]
UNDECIDED = [
    bent_case(case)
    for case in (*EITHER, *(case for case in REFUSE if not ABSORBING_ONLY.isdisjoint(case.codes)))
    if has_the_epilogue(case)
]


def each(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in cases])


def fuse_first(case: Case) -> s_tir.Schedule:
    sch = case.scheduled()
    sch.fuse_reduction_epilogue(case.reduction, case.epilogues[0], **case.options)
    return sch


@pytest.fixture(scope="module")
def compiled() -> Builds:
    """What is fused, and what it was made of."""
    functions = {}
    for case in (*ACCEPTED, *UNDECIDED, *REFUSED):
        with contextlib.suppress(s_tir.ScheduleError):
            functions[f"{case.name}_fused"] = fuse_first(case).mod["main"]
            functions[case.name] = case.scheduled().mod["main"]
    return Builds(functions, opt_level=0)


def check(case: Case, compiled: Builds) -> None:
    for sizes in case.sizes:
        inputs = make_inputs(case, "exact", sizes)
        before = run(compiled[case.name], case, inputs, sizes)
        after = run(compiled[f"{case.name}_fused"], case, inputs, sizes)
        for name in before:
            assert_same_bits(after[name], before[name], f"{case.name} {dict(sizes)}, {name}")


@each(ACCEPTED)
def test_is_fused(case: Case, compiled: Builds) -> None:
    assert f"{case.name}_fused" in compiled
    check(case, compiled)


@each(REFUSED)
def test_is_refused(case: Case) -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        fuse_first(case)
    assert fuse_epilogue.refusal_code(caught.value) in case.codes


@each(UNDECIDED)
def test_is_refused_or_right(case: Case, compiled: Builds) -> None:
    if f"{case.name}_fused" in compiled:
        check(case, compiled)
