"""Functions read as groups of stages along the same rows, and reductions as what they combine."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx
from tvm.relax import op
from tvm.sym import Analyzer

import row_operators
from fuse_epilogue.recognize.reduction import read_reduction
from fuse_epilogue.recognize.row_program import read_row_program
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.rewrites.branches import with_branches
from fuse_epilogue.workloads import matmul


def found(name: str, n: int = 33) -> Any:
    rule, shapes = {
        **row_operators.ROWS,
        **row_operators.EXACT,
        **row_operators.POOLS,
        **row_operators.AVERAGES,
    }[name]
    program = read_program(with_branches(row_operators.function(rule, shapes(n))))
    assert program is not None
    return read_row_program(program)


def lane(group: Any) -> int | None:
    """Return the place of the axis that lanes are along."""
    return None if group.lane is None else list(group.outer).index(group.lane)


@pytest.mark.parametrize(
    ("name", "outer", "along"),
    [
        ("softmax", [5], None),
        ("softmax-axis-1", [2, 3, 5], 2),
        ("softmax-of-gelu", [5], None),
        ("log-softmax", [5], None),
        ("layer-norm", [5], None),
        ("rms-norm", [5], None),
        ("group-norm", [2, 2], None),
        ("instance-norm", [2, 3], None),
        ("batch-norm", [2], None),
        ("variance", [5], None),
        ("argmax-last", [5], None),
        ("sum-all", [], None),
        ("sum-first", [33], 0),
        ("sum-middle", [3, 5], 1),
        ("global-NHWC", [2, 5], 1),
        ("max-3-2-1-NHWC", [2, 17, 18, 3], 3),
    ],
)
def test_rows_and_lanes(name: str, outer: list[int], along: int | None) -> None:
    (group,) = found(name).groups
    assert list(group.outer.values()) == outer
    assert lane(group) == along


def test_what_is_stored_across_the_rows_is_a_group_of_its_own() -> None:
    rows, transposed = found("softmax-transposed").groups
    assert rows.reduces and not transposed.reduces


def test_an_expensive_part_that_rows_share_is_a_stage() -> None:
    (group,) = found("layer-norm").groups
    shared = [each for each in group.stages if "rsqrt" in str(each.stage.value)]
    assert [each.local for each in shared] == [()]


def test_a_reshape_of_the_result_is_no_stage() -> None:
    program = found("softmax-reshaped")
    ((view, output),) = program.views
    assert program.program.stage_of(view) is not None
    assert program.program.stage_of(output) is None


def test_a_product_of_matrices_is_no_row_program() -> None:
    program = read_program(matmul(4, 5, 6))
    assert program is not None
    assert read_row_program(program) is None


def test_no_row_program_without_a_reduction() -> None:
    program = read_program(row_operators.function(op.nn.relu, [(4, 5)]))
    assert program is not None
    assert read_row_program(program) is None


def reduction(name: str) -> Any:
    (group,) = found(name).groups
    (each,) = [each for each in group.stages if each.reduction is not None]
    return each.reduction


@pytest.mark.parametrize(("name", "repeatable"), [("sum-last", False), ("max-last", True)])
def test_only_a_maximum_may_be_repeated(name: str, repeatable: bool) -> None:
    assert reduction(name).repeatable == (repeatable,)


def test_two_argmaxima_are_combined() -> None:
    index, value = reduction("argmax-last").combined(
        [tirx.const(3, "int64"), tirx.const(2.0, "float32")],
        [tirx.const(5, "int64"), tirx.const(2.0, "float32")],
    )
    analyzer = Analyzer()
    # Of equal values, the first one.
    assert int(analyzer.simplify(index)) == 3
    assert float(analyzer.simplify(value)) == 2


def test_a_sum_that_does_not_begin_at_zero_keeps_its_start() -> None:
    x = te.placeholder((7,), "float32", "x")
    k = te.reduce_axis((0, 7), "k")
    total = te.comm_reducer(lambda a, b: a + b, lambda dtype: tirx.const(2, dtype))
    program = read_program(te.create_prim_func([x, te.compute((), lambda: total(x[k], k))]))
    assert program is not None
    read = read_reduction(program.stages[0])
    assert read is not None
    assert float(read.neutral[0]) == 0 and float(read.starts[0]) == 2


def test_a_difference_cannot_be_regrouped() -> None:
    x = te.placeholder((7,), "float32", "x")
    k = te.reduce_axis((0, 7), "k")
    less = te.comm_reducer(lambda a, b: a - b, lambda dtype: tirx.const(0, dtype))
    program = read_program(te.create_prim_func([x, te.compute((), lambda: less(x[k], k))]))
    assert program is not None
    assert read_reduction(program.stages[0]) is None
