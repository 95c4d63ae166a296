"""A tail is right after the reduction's loops, in the innermost loop around all of them."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import For, ForKind, PrimFunc, SeqStmt, Stmt

from .fusion import blocks
from .subject import Steps, Subject

PLACEMENT = Steps()


def has_tails(subject: Subject) -> bool:
    """Ask of programs that keep a tail."""
    return bool(subject.case.tails)


def path_to(func: PrimFunc, name: str) -> list[Stmt]:
    """The statements from the body of the enclosing block down to the realize of block `name`."""

    def search(stmt: Stmt, path: list[Stmt]) -> list[Stmt] | None:
        here = [*path, stmt]
        if isinstance(stmt, s_tir.SBlockRealize):
            if stmt.block.name_hint == name:
                return here
            return search(stmt.block.body, [])
        if isinstance(stmt, SeqStmt):
            return next((found for s in stmt.seq if (found := search(s, here))), None)
        return search(stmt.body, here) if isinstance(stmt, For) else None

    found = search(func.body, [])
    assert found is not None, f"no block {name}"
    return found


def variables(expression: Any) -> set[tirx.Var]:
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(expression, [(tirx.Var, found.add)])
    return found


def split_at_the_place(path: list[Stmt]) -> int:
    """Where the path of a reduction enters its first reduction loop or vectorized loop."""
    realize = path[-1]
    reducing: set[tirx.Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iter_var.iter_type == tirx.IterVar.CommReduce:
            reducing |= variables(value)
    for position, stmt in enumerate(path):
        if isinstance(stmt, For):
            if stmt.loop_var in reducing or stmt.kind == ForKind.VECTORIZED:
                return position
    return len(path) - 1


def spatial_loops(path: list[Stmt]) -> list[For]:
    """The loops that the spatial axes, and the predicates on them, are made of."""
    realize = path[-1]
    spatial: set[tirx.Var] = set()
    reducing: set[tirx.Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        reduces = iter_var.iter_type == tirx.IterVar.CommReduce
        (reducing if reduces else spatial).update(variables(value))
    return [s for s in path if isinstance(s, For) and s.loop_var in spatial - reducing]


def in_terms_of(expression: Any, names: dict[tirx.Var, tirx.Var]) -> Any:
    """`expression` with variables renamed."""
    return tvm_ffi.structural_map(expression, [(tirx.Var, lambda var: names.get(var, var))])


@PLACEMENT.step(has_tails)
def tail_is_right_after_the_reduction(subject: Subject) -> None:
    case, func = subject.case, subject.fused.after
    path = path_to(func, case.reduction)
    place = split_at_the_place(path)
    sequence = path[place - 1]
    assert isinstance(sequence, SeqStmt)
    first = next(i for i, stmt in enumerate(sequence.seq) if stmt.same_as(path[place])) + 1
    for position, name in enumerate(case.tails, first):
        tail = path_to(func, name)
        # The same statements around both; then this one, and nothing in it but the tail.
        assert [s.same_as(t) for s, t in zip(path[:place], tail[:place], strict=True)] == (
            [True] * place
        )
        assert tail[place].same_as(sequence.seq[position])
        assert all(isinstance(stmt, For) for stmt in tail[place:-1])


@PLACEMENT.step(has_tails)
def tail_has_copies_of_the_spatial_loops(subject: Subject) -> None:
    case, func = subject.case, subject.fused.after
    path = path_to(func, case.reduction)
    place = split_at_the_place(path)
    mirrored = spatial_loops([*path[place:-1], path[-1]])
    realize = path[-1]
    for name in case.tails:
        tail = path_to(func, name)
        copies = tail[place:-1]
        assert [str(c.extent) for c in copies] == [str(m.extent) for m in mirrored]
        assert [c.kind for c in copies] == [m.kind for m in mirrored]
        to_copies = {m.loop_var: c.loop_var for m, c in zip(mirrored, copies, strict=True)}

        spatial = [
            (v, in_terms_of(value, to_copies))
            for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
            if v.iter_type != tirx.IterVar.CommReduce
        ]
        axes = tail[-1].block.iter_vars
        assert {v.iter_type for v in axes} <= {tirx.IterVar.DataPar}
        assert [str(v.dom) for v in axes] == [str(v.dom) for v, _ in spatial]
        for bound, (_, value) in zip(tail[-1].iter_values, spatial, strict=True):
            tvm.ir.assert_structural_equal(bound, value)


@PLACEMENT.step(has_tails)
def tail_reads_the_finished_element(subject: Subject) -> None:
    case, report = subject.case, subject.fused.report
    after = blocks(subject.fused.after)
    available = {report.output} | {after[name].writes[0].source.name for name in case.tails}
    for name in case.tails:
        assert available & {read.source.name for read in after[name].reads}
        assert after[name].init is None
