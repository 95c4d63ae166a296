"""Cascades whose keys are reduced in parts: the results, what is refused, and the certificates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import Call
from tvm.s_tir import Schedule

import fuse_epilogue
from cascade_by_hand import ByHand
from cascades import ACCEPT, BY_NAME, Cascade
from cascades.case import FACTOR, KEYS
from cascades.data import inputs, run
from cascades.judge import judge
from cuda_runs import on_machines
from fuse_epilogue.tir.build import with_fields
from fuse_epilogue.verify import CertificateError, check
from mutation import switch_off
from oracles import compile_together
from test_cascade_primitive import PROGRAMS
from test_cascade_primitive import run as run_function
from test_cascades_fused import scheduled

#: Blocks of FACTOR keys: three parts leave the last one without a key.
PARTS = 3

#: Programs that are fused, but not in parts, with the code.
NOT_IN_PARTS = {
    "gather_at_the_largest": "cascade-parts",
    "gate_of_the_largest": "cascade-parts",
}


def split(case: Cascade, parts: int = PARTS, keys: int = KEYS, factor: int = FACTOR) -> ByHand:
    """Both functions and the certificate of a call with parts."""
    sch = scheduled(case, keys)
    before = sch.mod["main"]
    call: Any = sch.fuse_cascaded_reductions
    report = call(case.block, factor=factor, parts=parts, numerics=case.numerics)
    assert report.certificate.parts == parts
    return ByHand(before, sch.mod["main"], report.certificate)


IN_PARTS = [case for case in ACCEPT if case.name not in NOT_IN_PARTS]


@functools.cache
def builds() -> dict[str, Any]:
    """The programs, as they are and fused in parts."""
    functions = {case.name: case.func() for case in IN_PARTS}
    functions |= {f"{case.name}_fused": split(case).after for case in IN_PARTS}
    return compile_together(functions, opt_level=1)


@pytest.mark.parametrize("case", IN_PARTS, ids=lambda case: case.name)
def test_is_right(case: Cascade) -> None:
    # A maximum forgets what was before a NaN, in an order that parts change.
    for kind, arrays in inputs(replace(case, nan=False), block=FACTOR):
        before, after = (
            run(builds()[name], case, arrays) for name in (case.name, f"{case.name}_fused")
        )
        right = case.expected(arrays, -(-KEYS // FACTOR) + PARTS)
        judge(f"{case.name} on {kind} data", right, before, after)


@pytest.mark.parametrize("case", IN_PARTS, ids=lambda case: case.name)
def test_certificate_is_proved(case: Cascade) -> None:
    given = split(case)
    check(given.before, given.after, given.claims)


@pytest.mark.cpp
@pytest.mark.parametrize("name", NOT_IN_PARTS)
def test_is_refused_in_parts_alone(name: str) -> None:
    case = BY_NAME[name]
    sch = scheduled(case)
    module, trace = sch.mod, str(sch.trace)
    call: Any = sch.fuse_cascaded_reductions
    with pytest.raises(s_tir.ScheduleError) as caught:
        call(case.block, factor=FACTOR, parts=PARTS, numerics=case.numerics)
    assert fuse_epilogue.refusal_code(caught.value) == NOT_IN_PARTS[name]
    assert sch.mod.same_as(module)
    assert str(sch.trace) == trace
    call(case.block, factor=FACTOR, parts=1, numerics=case.numerics)


@pytest.mark.cpp
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_result_for_every_number_of_parts(name: str) -> None:
    make, block, rules = PROGRAMS[name]
    func = make()
    expected = run_function(func)
    for factor, parts in ((1, 2), (3, 2), (2, 16), (None, 5)):
        sch = Schedule(func, debug_mask="all")
        report = sch.fuse_cascaded_reductions(block, factor=factor, parts=parts)
        assert [stage.rule for stage in report.certificate.stages] == rules
        for before, after in zip(expected, run_function(sch.mod["main"]), strict=True):
            np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)


OF_LENGTHS = ("softmax", "logsumexp", "attention", "variance", "softmax_masked")


@pytest.mark.parametrize(
    ("name", "keys"),
    # The mean of one key is no division.
    [(n, keys) for n in OF_LENGTHS for keys in (1, 2, 64, 65) if keys > 1 or n != "variance"],
)
def test_rows_of_all_lengths(name: str, keys: int) -> None:
    """Among them rows that are shorter than the number of parts."""
    case, factor, parts = BY_NAME[name], (2 if keys > 2 else 1), 5
    given = split(case, parts, keys, factor)
    built = compile_together({"before": given.before, "after": given.after}, opt_level=1)
    for kind, arrays in inputs(replace(case, nan=False), keys, factor):
        before, after = (run(built[which], case, arrays, keys) for which in ("before", "after"))
        right = case.expected(arrays, -(-keys // factor) + parts)
        judge(f"{name} on {kind} data, {keys} keys", right, before, after)


@pytest.mark.cpp
@pytest.mark.parametrize("keys", [1, 3, 8, 9, 40])
def test_symbolic_keys_may_leave_parts_empty(keys: int) -> None:
    case = BY_NAME["symbolic_keys"]
    given = split(case, parts=4, factor=2)
    check(given.before, given.after, given.claims)
    built = compile_together({"before": given.before, "after": given.after}, opt_level=1)
    for kind, arrays in inputs(replace(case, nan=False), keys, 2):
        before, after = (run(built[which], case, arrays, keys) for which in ("before", "after"))
        judge(f"{kind} data, {keys} keys", case.expected(arrays, keys + 4), before, after)


@pytest.mark.cpp
def test_special_values_of_whole_parts() -> None:
    """A part of -inf alone, of +inf, of NaN; a row of them; and a part of the lowest number."""
    sch = Schedule(BY_NAME["logsumexp"].func(8), debug_mask="all")
    before = sch.mod["main"]
    sch.fuse_cascaded_reductions(BY_NAME["logsumexp"].block, factor=2, parts=4)
    built = compile_together({"before": before, "after": sch.mod["main"]}, opt_level=1)
    rows, inf, nan = int(before.params[0].ty.shape[0]), np.inf, np.nan
    lowest = np.finfo("float32").min
    for value in (-inf, inf, nan, lowest, -lowest):
        for masked in ([0], [1], [3], [0, 2], [0, 1, 2, 3]):
            x = np.arange(rows * 8, dtype="float32").reshape(rows, 8) / 7
            for part in masked:
                x[:, 2 * part : 2 * part + 2] = value
            found = [run(built[name], BY_NAME["logsumexp"], {"x": x}, 8) for name in built]
            for name in found[0]:
                a, b = (each[name] for each in found)
                np.testing.assert_allclose(a, b, rtol=1e-5, equal_nan=True, err_msg=f"{value}")


# ---- What may be done with the parts -----------------------------------------------------------


@pytest.mark.cpp
def test_parts_run_in_parallel() -> None:
    func = PROGRAMS["attention"][0]()
    sch = Schedule(func, debug_mask="all")
    sch.fuse_cascaded_reductions("T_softmax_expsum", factor=2, parts=3)
    cascade = sch.get_sblock("T_softmax_maxelem_cascade")
    *_, part, _ = sch.get_loops(cascade)
    sch.reorder(part, *sch.get_loops(cascade)[:-2])
    sch.parallel(part)
    for name in ("T_softmax_maxelem_merge", "T_softmax_expsum_merge", "T_batch_matmul_NN_merge"):
        sch.parallel(sch.get_loops(sch.get_sblock(name))[0])
    for before, after in zip(run_function(func), run_function(sch.mod["main"]), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)


@on_machines
def test_parts_run_on_threads(machine: Any) -> None:
    func = PROGRAMS["attention"][0]()
    sch = Schedule(func, debug_mask="all")
    sch.fuse_cascaded_reductions("T_softmax_expsum", factor=2, parts=3)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        *rows, _ = sch.get_loops(block)[:3]
        sch.bind(sch.fuse(*rows), "blockIdx.x")
        if not sch.get(block).name_hint.endswith("_merge"):
            sch.bind(sch.get_loops(block)[1], "threadIdx.x")
    # What is between two states is scratch memory of each thread, not of all.
    for name in ("T_softmax_maxelem", "T_softmax_expsum", "T_batch_matmul_NN"):
        (written,) = sch.get(sch.get_sblock(f"{name}_next")).writes
        assert written.source.ty.storage_scope == "local"
    replayed = Schedule(func)
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    tvm.ir.assert_structural_equal(replayed.mod, sch.mod)
    rng = np.random.default_rng(0)
    shapes = [[int(dim) for dim in param.ty.shape] for param in func.params]
    arrays = [(rng.standard_normal(shape) * 3).astype("float32") for shape in shapes]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    machine(sch.mod["main"].with_attr("global_symbol", "main"))(*tensors)
    expected = run_function(func)[-1]
    np.testing.assert_allclose(tensors[-1].numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.cpp
@pytest.mark.parametrize(
    ("inside", "outside", "scope"),
    [
        (False, "threadIdx.y", "local"),
        (False, "blockIdx.x", "global"),
        (True, "threadIdx.y", "global"),
    ],
)
def test_memory_that_threads_may_share_stays(inside: bool, outside: str, scope: str) -> None:
    sch = Schedule(PROGRAMS["attention"][0](), debug_mask="all")
    sch.fuse_cascaded_reductions("T_softmax_expsum", factor=2)
    block = sch.get_sblock("T_batch_matmul_NN_next")
    if inside:
        sch.bind(sch.get_loops(block)[-1], "threadIdx.x")
    sch.bind(sch.get_loops(sch.get_sblock("T_softmax_maxelem_cascade"))[0], outside)
    (written,) = sch.get(block).writes
    assert written.source.ty.storage_scope == scope


@pytest.mark.cpp
def test_merges_are_plain_reductions() -> None:
    """States are merged in a tree, and the last merge takes its epilogue."""
    func = PROGRAMS["attention"][0]()
    sch = Schedule(func, debug_mask="all")
    sch.fuse_cascaded_reductions("T_softmax_expsum", factor=1, parts=8)
    for name in ("T_softmax_maxelem_merge", "T_softmax_expsum_merge", "T_batch_matmul_NN_merge"):
        merge = sch.get_sblock(name)
        part = next(loop for loop in sch.get_loops(merge) if sch.get(loop).extent == 8)
        sch.rfactor(sch.split(part, [2, 4])[0], 0)
    report = sch.fuse_reduction_epilogue("T_batch_matmul_NN_merge", "T_batch_matmul_NN")
    assert report.fusable
    for one, other in zip(run_function(func), run_function(sch.mod["main"]), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-6)


@pytest.mark.cpp
def test_replays_from_the_trace_and_from_json() -> None:
    func = PROGRAMS["softmax"][0]()
    sch = Schedule(func)
    report = sch.fuse_cascaded_reductions("T_softmax_expsum", factor=4, parts=2)
    assert ", factor=4, parts=2)" in str(sch.trace)
    assert "in blocks of 4 keys, in 2 parts" in str(report)
    assert "keys in 2 parts" in str(report.certificate)
    assert report.certificate.as_json()["parts"] == 2
    replayed, read = Schedule(func), Schedule(func)
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    s_tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), read)
    for other in (replayed, read):
        tvm.ir.assert_structural_equal(other.mod, sch.mod)


# ---- What is refused ---------------------------------------------------------------------------


def counted(dtype: str) -> Any:
    """How often the largest key of a row occurs."""
    x = te.placeholder((4, KEYS), dtype, name="x")
    k, one = te.reduce_axis((0, KEYS), "k"), tirx.const(1, "int32")
    m = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="m")
    j = te.reduce_axis((0, KEYS), "j")
    zero = tirx.const(0, "int32")
    s = te.compute(
        (4,), lambda i: te.sum(tirx.Select(x[i, j].equal(m[i]), one, zero), axis=j), name="s"
    )
    return te.create_prim_func([x, m, s])


@pytest.mark.cpp
def test_exact_takes_integers_in_parts() -> None:
    func = counted("int8")
    sch = Schedule(func)
    report = sch.fuse_cascaded_reductions("s", factor=2, parts=3, numerics="exact")
    check(func, sch.mod["main"], report.certificate)
    x = np.random.default_rng(0).integers(-2, 3, (4, KEYS)).astype("int8")
    m, s = (tvm.runtime.tensor(np.zeros(4, dtype)) for dtype in ("int8", "int32"))
    built = tvm.compile(sch.mod["main"].with_attr("global_symbol", "main"), target="llvm")
    built["main"](tvm.runtime.tensor(x), m, s)
    np.testing.assert_array_equal(m.numpy(), x.max(1))
    np.testing.assert_array_equal(s.numpy(), (x == x.max(1, keepdims=True)).sum(1))


def floats_first() -> Any:
    """A maximum of floats, of which a maximum of integers reads the sign."""
    x, y = (te.placeholder((4, KEYS), t, name=n) for t, n in (("float32", "x"), ("int32", "y")))
    k, j = (te.reduce_axis((0, KEYS), name) for name in "kj")
    m = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="m")
    term = lambda i: te.max(y[i, j], tirx.Select(m[i] > 0, 1, 0))  # noqa: E731
    return te.create_prim_func(
        [x, y, m, te.compute((4,), lambda i: te.max(term(i), axis=j), name="s")]
    )


@pytest.mark.cpp
def test_exact_refuses_a_maximum_of_floats_in_parts() -> None:
    """Which of several NaN counts, and which zero, depends on the order."""
    func = floats_first()
    Schedule(func).fuse_cascaded_reductions("s", numerics="exact")
    sch = Schedule(func)
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_cascaded_reductions("s", factor=2, parts=2, numerics="exact")
    assert fuse_epilogue.refusal_code(caught.value) == "cascade-exact"
    switch_off(["cascade-exact"])
    try:
        report = sch.fuse_cascaded_reductions("s", factor=2, parts=2, numerics="exact")
    finally:
        switch_off([])
    with pytest.raises(CertificateError, match="another order"):
        check(func, sch.mod["main"], report.certificate)
    x = np.array([[5, -3, -3, -3, -3, -3, -1, np.nan, -2, -3]] * 4, "float32")
    y, results = np.full((4, KEYS), -1, "int32"), []
    for each in (func, sch.mod["main"]):
        m, s = (tvm.runtime.tensor(np.zeros(4, dtype)) for dtype in ("float32", "int32"))
        built = tvm.compile(each.with_attr("global_symbol", "main"), target="llvm")
        built["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), m, s)
        results.append(m.numpy())
    assert results[0].tolist() != results[1].tolist()


@pytest.mark.parametrize(
    ("parts", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (2.0, TypeError)]
)
def test_wrong_numbers_of_parts(parts: Any, error: type[Exception]) -> None:
    sch = Schedule(PROGRAMS["softmax"][0]())
    with pytest.raises(error, match="parts must be"):
        sch.fuse_cascaded_reductions("T_softmax_expsum", parts=parts)


@pytest.mark.cpp
@pytest.mark.parametrize("parts", [2**31, 2**28])
def test_too_many_parts(parts: int) -> None:
    sch = Schedule(PROGRAMS["softmax"][0]())
    with pytest.raises(s_tir.ScheduleError) as caught:
        sch.fuse_cascaded_reductions("T_softmax_expsum", factor=8, parts=parts)
    assert fuse_epilogue.refusal_code(caught.value) == "cascade-loop"


# ---- Certificates that are not proved ----------------------------------------------------------


def merges(given: ByHand, change: Callable[[Any], Any]) -> ByHand:
    """The function with another statement in the last merge."""

    def changed(block: Any) -> Any:
        last = given.claims.stages[-1].name
        return change(block) if block.name_hint == f"{last}_merge" else block

    body = tvm_ffi.structural_map(given.after.body, (s_tir.SBlock, changed))
    return replace(given, after=given.after.with_body(body))


def _corrected(block: Any) -> Any:
    """Without the correction: the exponential is 1."""

    def one(call: Any) -> Any:
        return tirx.const(1.0, "float32") if "exp" in str(call.op) else call

    return with_fields(block, body=tvm_ffi.structural_map(block.body, (Call, one)))


def _started(block: Any) -> Any:
    init = block.init
    value = init.value + tirx.const(1.0, "float32")
    return with_fields(block, init=tirx.BufferStore(init.buffer, value, init.indices))


def _fewer(block: Any) -> Any:
    """A part is left out: its loop is one shorter than its axis claims."""
    axes = [
        tirx.IterVar(
            tvm.ir.Range(0, axis.dom.extent - 1) if int(axis.iter_type) == 2 else axis.dom,
            axis.var,
            axis.iter_type,
            axis.thread_tag,
        )
        for axis in block.iter_vars
    ]
    return with_fields(block, iter_vars=axes)


WRONG = {
    "a part is not corrected": _corrected,
    "the merge starts from another number": _started,
    "a part is left out": _fewer,
}


@pytest.mark.cpp
@pytest.mark.parametrize("name", WRONG)
def test_wrong_merge_is_refused(name: str) -> None:
    given = split(BY_NAME["logsumexp"])
    wrong = merges(given, WRONG[name])
    assert not tvm_ffi.structural_equal(wrong.after, given.after)
    with pytest.raises(CertificateError):
        check(wrong.before, wrong.after, wrong.claims)


@pytest.mark.cpp
@pytest.mark.parametrize("change", ["fewer", "more", "one", "none", "swapped", "missing", "other"])
def test_other_claims_about_parts_are_refused(change: str) -> None:
    given = split(BY_NAME["attention"])
    first, second = given.claims.stages[:2]
    counts = {"fewer": PARTS - 1, "more": PARTS + 1, "one": 1, "none": 0}
    states = {"swapped": first.part_state, "missing": None, "other": second.state}
    if change in counts:
        wrong = given.claiming(parts=counts[change])
    else:
        wrong = given.stage(1, part_state=states[change])
    with pytest.raises(CertificateError):
        check(wrong.before, wrong.after, wrong.claims)


@pytest.mark.cpp
def test_block_without_keys_must_start_from_its_state() -> None:
    """A T.init under the condition that there is a key does not run without one."""
    given = split(BY_NAME["logsumexp"])
    starts: dict[str, Any] = {}

    def corrected(stmt: Any) -> str:
        name = str(stmt.block.name_hint) if isinstance(stmt, s_tir.SBlockRealize) else ""
        return name.removesuffix("_corrected") if name.endswith("_corrected") else ""

    def without(sequence: Any) -> Any:
        for stmt in sequence.seq:
            if corrected(stmt):
                starts[f"{corrected(stmt)}_next"] = stmt.block.body
        kept = [stmt for stmt in sequence.seq if not corrected(stmt)]
        return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)

    def started(block: Any) -> Any:
        start = starts.get(str(block.name_hint))
        return block if start is None else with_fields(block, init=start)

    body = tvm_ffi.structural_map(given.after.body, (tirx.SeqStmt, without))
    body = tvm_ffi.structural_map(body, (s_tir.SBlock, started))
    assert len(starts) == 2
    with pytest.raises(CertificateError, match="starts from nothing"):
        check(given.before, given.after.with_body(body), given.claims)


@pytest.mark.cpp
@pytest.mark.parametrize("name", ["attention", "variance", "rms_norm_then_product"])
def test_whole_parts_are_proved(name: str) -> None:
    """Where every block has its keys, a T.init starts each of them."""
    given = split(BY_NAME[name], parts=2, keys=16, factor=4)
    assert "_corrected" not in given.after.script()
    check(given.before, given.after, given.claims)


@pytest.mark.cpp
def test_part_that_starts_from_more_than_nothing_is_refused() -> None:
    """A bias would count once for each part."""
    given = split(BY_NAME["variance"])

    def started(store: Any) -> Any:
        ours = store.buffer.same_as(given.claims.stages[0].part_state)
        zero = isinstance(store.value, tirx.FloatImm) and float(store.value) == 0
        if not (ours and zero):
            return store
        return tirx.BufferStore(store.buffer, tirx.const(1.0, "float32"), store.indices)

    body = tvm_ffi.structural_map(given.after.body, (tirx.BufferStore, started))
    assert not tvm_ffi.structural_equal(body, given.after.body)
    with pytest.raises(CertificateError, match="T.init"):
        check(given.before, given.after.with_body(body), given.claims)
