"""Functions that are not what the certificate says, or that somebody else looks at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var, prim
from tvm.s_tir import Schedule
from tvm.tirx import ForKind, PrimFunc

from certified import (
    Certified,
    block,
    buffers,
    certified,
    filling,
    loaded,
    loop,
    mapped,
    realized,
    start,
    stored,
    top_level,
    value,
)
from fuse_epilogue.verify import CertificateError, check

BIAS = "bias_then_relu"
TURNED = "transposing_tails"
TILED = "tail_everything_tiled"
THREADS = "tail_threads"
OTHERS = "other_work_between"
CHAIN = "two_outputs"

Change = Callable[[PrimFunc], PrimFunc]


def checked(given: Certified) -> None:
    check(given.before, given.after, given.certificate)


def refused(given: Certified, claim: str) -> str:
    with pytest.raises(CertificateError) as caught:
        checked(given)
    assert caught.value.claim == claim, caught.value
    return str(caught.value)


def number(value: float) -> prim.FloatImm:
    return tirx.FloatImm("float32", value)


def turned(store: tirx.BufferStore) -> tirx.BufferStore:
    return tirx.BufferStore(store.buffer, store.value, list(store.indices)[::-1])


def without_last(parts: list) -> list:
    return list(parts)[:-1]


def reversed_bindings(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
    values = list(realize.iter_values)[::-1]
    return s_tir.SBlockRealize(values, realize.predicate, realize.block)


def always(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
    return s_tir.SBlockRealize(realize.iter_values, prim.IntImm("bool", 1), realize.block)


def moved_into(name: str) -> Change:
    """Move what follows the loop with a variable of that name into that loop."""

    def change(seq: tirx.SeqStmt) -> tirx.For:
        first, *rest = seq.seq
        body = tirx.SeqStmt([first.body, *rest])
        return tirx.For(first.loop_var, first.min, first.extent, first.kind, body)

    def fits(seq: tirx.SeqStmt) -> bool:
        return isinstance(seq.seq[0], tirx.For) and seq.seq[0].loop_var.name == name

    return mapped(tirx.SeqStmt, change, fits)


def swapped(seq: tirx.SeqStmt) -> tirx.SeqStmt:
    return tirx.SeqStmt(list(seq.seq)[::-1])


# What is wrong with the function after, where the checker sees it, and how it gets wrong.
TAMPERED: dict[str, tuple[str, str, Change]] = {
    "init": (BIAS, "init", start("mm", lambda v: v + number(1))),
    "no init": (BIAS, "after", block("mm", init=None)),
    "init elsewhere": (TURNED, "result_indices", block("mm", init=turned)),
    "terms": (BIAS, "distributed", value("mm", lambda v: v.a + v.b * number(2))),
    "terms of another index": (
        BIAS,
        "distributed",
        value("mm", lambda v: v.a + loaded(v.b, "A") * loaded(v.b, "A")),
    ),
    "combiner": (BIAS, "monoid_after", value("mm", lambda v: tirx.max(v.a, v.b))),
    "update elsewhere": (TURNED, "result_indices", block("mm", body=turned)),
    "one more store": (
        BIAS,
        "after",
        block("mm", body=lambda s: tirx.SeqStmt([s, s])),
    ),
    "tail": (BIAS, "tails[0].value", value("relu", lambda v: v + number(1))),
    "no tail function": (BIAS, "tails[0].value", value("relu", lambda v: v.a)),
    "tail elsewhere": (BIAS, "tails[0].indices", stored("relu", turned)),
    "tail of another element": (
        TURNED,
        "tails[0].value",
        value("back", lambda v: tirx.BufferLoad(v.a.a.source, list(v.a.a.indices)[::-1])),
    ),
    "tail gone": (BIAS, "tails[0].name", mapped(tirx.SeqStmt, lambda s: s.seq[0])),
    "tail before the loops": (BIAS, "tails[0].name", mapped(tirx.SeqStmt, swapped)),
    "tail inside the reduction loop": (BIAS, "tails[0].name", moved_into("k")),
    "tail bindings": (BIAS, "tails[0].name", realized("relu", reversed_bindings)),
    "tail predicate": (TILED, "tails[0].name", realized("add", always)),
    "tail regions": (BIAS, "after", block("relu", reads=[])),
    "tail writes": (BIAS, "after", block("relu", writes=[])),
    "reduction regions": (BIAS, "after", block("mm", reads=without_last)),
    "reduction bindings": (BIAS, "after", realized("mm", reversed_bindings)),
    "reduction predicate": (TILED, "after", realized("mm", always)),
    "reduction axis kind": (
        BIAS,
        "after",
        block(
            "mm",
            iter_vars=lambda axes: [
                tirx.IterVar(axis.dom, axis.var, tirx.IterVar.DataPar) for axis in axes
            ],
        ),
    ),
    "reduction annotations": (
        BIAS,
        "after",
        block("mm", annotations={"meta_schedule.note": "none"}),
    ),
    "tail annotations": (
        BIAS,
        "after",
        block("relu", annotations={"buffer_dim_align": [[0, 0, 4, 1]]}),
    ),
    "allocation twice": (
        BIAS,
        "after",
        block("root", alloc_buffers=lambda found: [*found, *found]),
    ),
    "loop extent": (BIAS, "after", loop("k", extent=lambda e: e - 1)),
    "loop start": (BIAS, "after", loop("k", min=lambda m: m + 1)),
    "loop kind": (BIAS, "after", loop("k", kind=ForKind.PARALLEL)),
    "loop annotations": (BIAS, "after", loop("k", annotations={"pragma_note": 1})),
    "another block": (
        OTHERS,
        "after",
        mapped(prim.IntImm, lambda v: v + 1, lambda v: int(v.value) == 3),
    ),
    "attributes": (BIAS, "after", lambda func: func.with_attr("tir.noalias", True)),
    "allocation": (BIAS, "removed", block("root", alloc_buffers=lambda found: [])),
    "another allocation": (
        BIAS,
        "after",
        block("root", alloc_buffers=lambda found: [*found, tirx.decl_buffer((4,), name="more")]),
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampered_functions_are_refused(what: str) -> None:
    name, claim, change = TAMPERED[what]
    given = certified(name)
    checked(given)
    refused(given.storing(change), claim)


def test_threads_of_a_local_accumulator() -> None:
    """Memory of a thread is read by the thread that computed it."""
    given = certified(THREADS)
    checked(given)
    # The tail in loops of its own, of the same threads.
    refused(given.storing(_tail_apart), "tails[0].name")


def _tail_apart(func: PrimFunc) -> PrimFunc:
    """Take the tail out of the loops of the reduction, into copies of them."""
    nest = func.body.block.body
    outer, inner = nest, nest.body
    reduction, tail = inner.body.seq

    def loops(body: tirx.Stmt, fresh: bool) -> tirx.For:
        made = []
        for old in (outer, inner):
            var = Var(f"{old.loop_var.name}_2", old.loop_var.ty) if fresh else old.loop_var
            made.append((old, var))
        if fresh:
            values = [var for _, var in made]
            body = s_tir.SBlockRealize(values, body.predicate, body.block)
        for old, var in reversed(made):
            body = tirx.For(var, old.min, old.extent, old.kind, body, old.thread_binding)
        return body

    return top_level(lambda _: [loops(reduction, False), loops(tail, True)])(func)


# ---------------------------------------------------------------------------------------------
# Somebody else
# ---------------------------------------------------------------------------------------------

# bias_then_relu: D[8, 7] = relu(A @ B.T + E[j]). The blocks that are added fill a buffer of one
# axis, at the same place before and after; what they fill or read decides whether that matters.


def inserted(place: int, target: str, read: str | None = None) -> Callable[[Certified], Certified]:
    """Add a block behind `place` top-level statements of the function before.

    After the fusion there is one statement, so that a block in front of it stays in front.
    """

    def change(given: Certified) -> Certified:
        found = buffers(given.before)
        work = filling("work", found[target], None if read is None else found[read])

        def before(parts: list) -> list:
            return [*parts[:place], work, *parts[place:]]

        def after(parts: list) -> list:
            return [work, *parts] if place == 0 else [*parts, work]

        return Certified(
            top_level(before)(given.before), top_level(after)(given.after), given.certificate
        )

    return change


@pytest.mark.parametrize("place", [0, 3])
def test_a_bias_made_before_or_after_everything(place: int) -> None:
    checked(inserted(place, "E")(certified(BIAS)))


@pytest.mark.parametrize("place", [1])
def test_a_bias_made_between_is_refused(place: int) -> None:
    message = refused(inserted(place, "E")(certified(BIAS)), "order")
    assert "'add' moves over 'work', and both use 'E'" in message


def test_a_bias_made_behind_its_epilogue() -> None:
    """'relu' moves over it, but does not use it."""
    checked(inserted(2, "E")(certified(BIAS)))


# matvec: D[8] = A @ x + y.
@pytest.mark.parametrize(("target", "read"), [("y", "D"), ("D", None)], ids=["read", "overwritten"])
def test_outputs_others_use(target: str, read: str | None) -> None:
    given = certified("matvec")
    checked(inserted(0, target, read)(given))
    checked(inserted(2, target, read)(given))
    assert "moves over 'work'" in refused(inserted(1, target, read)(given), "order")


def test_an_intermediate_others_read_is_not_removed() -> None:
    """A block that reads `temp` behind everything: it is gone after the fusion."""
    given = certified("matvec")
    temp = next(var for var in given.certificate.removed)
    work = filling("work", buffers(given.before)["y"], temp)
    changed = given.both(top_level(lambda parts: [*parts, work]))
    refused(changed, "removed")


def test_an_intermediate_others_read_does_not_change() -> None:
    """`temp` stays allocated, but holds another value than before."""
    given = certified(CHAIN)
    temp = given.certificate.result
    assert not given.certificate.removed and temp.name == "temp"
    work = filling("work", buffers(given.before)["C"], temp)
    changed = given.both(top_level(lambda parts: [*parts, work]))
    refused(changed, "kept")
    refused(changed.claiming(kept=(temp,)), "absorbed")


def test_statements_outside_of_blocks_count() -> None:
    given = certified("matvec")
    checked(given)
    found = buffers(given.before)
    zero = tirx.IntImm("int32", 0)
    store = tirx.BufferStore(found["y"], tirx.BufferLoad(found["y"], [zero]), [zero])
    checked(given.both(top_level(lambda parts: [store, *parts])))
    between = Certified(
        top_level(lambda parts: [parts[0], store, *parts[1:]])(given.before),
        top_level(lambda parts: [*parts, store])(given.after),
        given.certificate,
    )
    assert "outside of blocks" in refused(between, "order")


def test_the_kind_of_a_tails_loops() -> None:
    """A loop of one iteration may be of any kind, but of a thread; others are as they were."""

    def outcome(rows: int, kind: ForKind) -> str:
        func = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((2, 3, {rows}), "int32"), D: T.Buffer((2, {rows}), "int32")):
    temp = T.sblock_alloc_buffer((2, {rows}), "int32")
    for o, k, i in T.grid(2, 3, {rows}):
        with T.sblock("sum"):
            vo, vi, vk = T.axis.remap("SSR", [o, i, k])
            with T.init():
                temp[vo, vi] = 0
            temp[vo, vi] = temp[vo, vi] + A[vo, vk, vi]
    for o, i in T.grid(2, {rows}):
        with T.sblock("absolute"):
            vo, vi = T.axis.remap("SS", [o, i])
            D[vo, vi] = T.max(temp[vo, vi], 0 - temp[vo, vi])
""")
        sch = Schedule(func, debug_mask="all")
        report = sch.fuse_reduction_epilogue("sum")

        def changed(loop: tirx.For) -> tirx.For:
            around = isinstance(loop.body, s_tir.SBlockRealize)
            if not around or loop.body.block.name_hint != "absolute":
                return loop
            return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body)

        after = tvm_ffi.structural_map(sch.mod["main"], (tirx.For, changed))
        assert not tvm_ffi.structural_equal(after, sch.mod["main"])
        try:
            check(func, after, report.certificate)
        except CertificateError as error:
            return str(error)
        return "accepted"

    for kind in (ForKind.VECTORIZED, ForKind.PARALLEL, ForKind.UNROLLED):
        assert outcome(1, kind) == "accepted"
        assert "is of another kind" in outcome(4, kind)
    assert "is of another kind" in outcome(1, ForKind.THREAD_BINDING)
