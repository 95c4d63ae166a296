"""Tests of the judge of generated programs: each fault in a fusion is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, tirx
from tvm.ir import prim

from generated.baseline import for_tvm, tvms
from generated.compiled import disagreements, sampled
from generated.examples import (
    ADD,
    CANCELLING_SEED,
    EXAMPLES,
    NEGATING_SEED,
    PLAIN,
    cancelling,
    counterexamples,
    negating,
    overflowing,
    program,
    repeating,
)
from generated.shrink import shrink
from generated.spec import (
    Epilogue,
    Program,
)
from generated.strategy import random_program
from generated.verdict import (
    ACCEPTED_DIFFERENT,
    ACCEPTED_EQUAL,
    ERROR,
    REFUSED_WRONG_CODE,
    find_difference,
    judge,
    ours,
)


def functions(one: Program) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    """The function before and after a fusion that has to be accepted."""
    verdict = judge(one)
    assert verdict.kind == ACCEPTED_EQUAL
    return verdict.before, verdict.after


def changed(func: tirx.PrimFunc, node: Any, make: Any) -> tirx.PrimFunc:
    """The function with nodes of a type replaced."""
    import tvm_ffi

    return tvm_ffi.structural_map(func, [(node, make)])


def test_a_dropped_bias_is_noticed() -> None:
    before, after = functions(PLAIN)

    def without_bias(block: s_tir.SBlock) -> s_tir.SBlock:
        if block.init is None:
            return block
        init = tirx.BufferStore(
            block.init.buffer, tirx.IntImm("int32", 0), list(block.init.indices)
        )
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            init,
            block.alloc_buffers,
        )

    assert not find_difference(PLAIN, before, after, reorders=False)
    assert find_difference(PLAIN, before, changed(after, s_tir.SBlock, without_bias), False)


def test_a_dropped_tail_is_noticed() -> None:
    relu = program(Epilogue(expr=("max", ("x",), ("lit", "int32", 0))))
    before, after = functions(relu)
    broken = changed(after, tirx.Max, lambda node: node.a)
    assert "exact data" in find_difference(relu, before, broken, False)


def test_another_order_of_additions_is_noticed_where_it_must_not_be() -> None:
    one = program(
        Epilogue(expr=("add", ("x",), ("elem", "float32", 9)), dtype="float32"),
        reduction={"accumulator": "float32", "source": "float32", "reduce": (7,)},
    )
    before, after = functions(one)
    assert not find_difference(one, before, after, reorders=True)
    assert "normal data" in find_difference(one, before, after, reorders=False)


def test_a_rounding_more_is_out_of_bounds() -> None:
    one = program(
        Epilogue(expr=("add", ("x",), ("elem", "float32", 9)), dtype="float32"),
        reduction={"accumulator": "float32", "source": "float32"},
    )
    before, after = functions(one)

    def halved(load: tvm.ir.TensorLoad) -> Any:
        if str(load.source.name) != "X":
            return load
        return tirx.Cast("float32", tirx.Cast("float16", load))

    broken = changed(after, tvm.ir.TensorLoad, halved)
    assert "normal data" in find_difference(one, before, broken, reorders=True)


def test_another_order_of_a_sum_that_cancels_is_within_bounds() -> None:
    one = cancelling()
    before, after = functions(one)
    assert not find_difference(one, before, after, True, CANCELLING_SEED)

    def narrowed(load: tvm.ir.TensorLoad) -> Any:
        if str(load.source.name) != "G":
            return load
        return tirx.Cast("float32", tirx.Cast("bfloat16", load))

    broken = changed(after, tvm.ir.TensorLoad, narrowed)
    assert "normal data" in find_difference(one, before, broken, True, CANCELLING_SEED)


def test_a_product_is_compiled_on_data_on_which_it_does_not_overflow() -> None:
    one = overflowing()
    verdict = judge(one)
    entry = sampled(0, one, verdict)
    assert entry is not None
    assert np.abs(entry.arrays["X"]).max() <= 2
    assert not list(disagreements([entry]))
    longer = replace(one, reduction=replace(one.reduction, reduce=(99,)))
    assert sampled(0, longer, judge(longer)) is None


def test_a_comparison_that_tvm_negates_is_not_the_fusions_fault() -> None:
    one = negating()
    entry = sampled(NEGATING_SEED, one, judge(one, seed=NEGATING_SEED))
    assert entry is not None
    [(_, verdict)] = disagreements([entry])
    assert (verdict.kind, verdict.detail[:26]) == ("ill-formed", "TVM makes the same of both")


def test_what_tvm_makes_of_both_functions_is_not_the_fusions_fault() -> None:
    one = repeating()
    entry = sampled(0, one, judge(one))
    assert entry is not None
    [(_, verdict)] = disagreements([entry])
    assert (verdict.kind, verdict.detail[:26]) == ("ill-formed", "TVM makes the same of both")
    # The same result on both sides, but a fusion that changes what the function says.
    wrong = changed(entry.after, prim.Add, lambda node: prim.Sub(node.a, node.b))
    [(_, verdict)] = disagreements([replace(entry, after=wrong)])
    assert verdict.kind == "accepted-different"


def test_unwritten_memory_is_noticed() -> None:
    before, after = functions(PLAIN)
    without_init = changed(
        after,
        s_tir.SBlock,
        lambda block: s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            None,
            block.alloc_buffers,
        ),
    )
    assert find_difference(PLAIN, before, without_init, reorders=False)


@pytest.mark.parametrize("one", list(counterexamples()))
def test_the_mistakes_of_tvms_primitive_are_noticed(one: Program) -> None:
    other = for_tvm(one)
    assert other is not None
    assert judge(other, tvms).kind in (ACCEPTED_DIFFERENT, ERROR)
    assert judge(one).kind == ACCEPTED_EQUAL


def test_tvms_primitive_is_right_about_a_plain_sum() -> None:
    other = for_tvm(PLAIN)
    assert other is not None
    verdict = judge(other, tvms)
    assert verdict.kind == ACCEPTED_EQUAL
    # It is TVM's: only that one leaves the intermediate among the allocations.
    assert [buffer.name for buffer in verdict.after.body.block.alloc_buffers] == ["result"]


def test_a_wrong_code_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = EXAMPLES["other writer"][0]
    monkeypatch.setattr("generated.verdict.refusal_code", lambda error: "domain")
    assert judge(forbidden).kind == REFUSED_WRONG_CODE


def test_a_refusal_that_changes_something_is_noticed() -> None:
    def primitive(sch: s_tir.Schedule, blocks: tuple[str, ...], one: Program) -> Any:
        sch.get_sblock(blocks[0])
        return ours(sch, blocks, one)

    assert judge(EXAMPLES["other writer"][0], primitive).kind == ERROR


def test_another_error_is_noticed() -> None:
    def primitive(sch: s_tir.Schedule, blocks: tuple[str, ...], one: Program) -> Any:
        raise ValueError("no")

    verdict = judge(PLAIN, primitive)
    assert (verdict.kind, verdict.detail) == (ERROR, "ValueError: no")


def test_shrinking_keeps_the_fault_and_little_else() -> None:
    large = random_program("shrink/3")
    large = replace(
        large,
        reduction=replace(PLAIN.reduction, spatial=(3, 2), reduce=(4,), init="buffer"),
        epilogues=(Epilogue(expr=("max", ADD, ("scalar", "int32", 3)), read="transposed"),),
        hazards=(),
        steps=(),
        call="pair",
        named=0,
        symbolic=False,
    )
    small = shrink(large, lambda one: judge(one, tvms).kind == ACCEPTED_DIFFERENT)
    assert judge(small, tvms).kind == ACCEPTED_DIFFERENT
    assert len(json.dumps(small.to_json())) < len(json.dumps(large.to_json()))
    assert small.reduction.spatial == (1,)
