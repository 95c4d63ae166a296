"""Spaces, their constraints, and that a cost is computed of all points at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuse_epilogue.planner.problems.cpu import find_product, find_rows
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Constraint, Points, Space, Variable, divisors
from fuse_epilogue.workloads import matmul, row_reduce
from planner_problems import SMALL, assert_constraints_prune, machine, problem


def test_points_are_the_product_of_the_choices():
    space = Space((Variable("a", (1, 2), "", ""), Variable("b", (5, 6, 7), "", "")))
    points = space.points()
    assert space.size == points.size == 6
    assert [points.at(i) for i in (0, 1, 5)] == [
        {"a": 1, "b": 5},
        {"a": 1, "b": 6},
        {"a": 2, "b": 7},
    ]
    assert len({tuple(points.at(i).values()) for i in range(6)}) == 6


def test_a_point_counts_for_the_first_constraint_that_it_breaks():
    a = Variable("a", (1, 2, 3, 4), "", "")
    first = Constraint("first", 2, "", lambda p: p["a"], "")
    second = Constraint("second", 1, "", lambda p: p["a"], "")
    points, pruned = Space((a,), (first, second)).feasible()
    assert points["a"].tolist() == [1]
    assert pruned == {"first": 2, "second": 1}


@pytest.mark.parametrize("name", SMALL)
def test_constraints_prune_what_they_say(name):
    assert_constraints_prune(problem(name).space)


def test_registers_and_caches_come_from_the_machine():
    few = problem("product", machine(registers=4)).space
    kept, pruned = few.feasible()
    assert pruned["registers"] > 0 and (kept["rows"] * kept["vectors"]).max() == 4
    caches = machine().levels
    small = tuple(replace(c, bytes=256) if c.name == "L1" else c for c in caches)
    kept, pruned = problem("product", machine(levels=small)).space.feasible()
    assert pruned["L1"] > 0
    narrow = tuple(replace(c, bytes=512) if c.name == "L2" else c for c in caches)
    kept, pruned = problem("product", machine(levels=narrow)).space.feasible()
    assert pruned["L2"] > 0
    wide = kept["block_columns"] > kept["vectors"] * kept["lanes"]
    assert np.all(kept["block_columns"][wide] * 8 * 4 <= 512)


def test_partial_results_leave_the_bias_to_the_tail():
    kept, pruned = problem("rows").space.feasible()
    assert pruned["start"] > 0
    labels = problem("rows").space.by_name["fusion"].labels
    assert labels == ("none", "tail", "absorbed")
    assert not np.any((kept["lanes"] > 1) & (kept["fusion"] == 2))
    assert np.any((kept["lanes"] == 1) & (kept["fusion"] == 2))


def test_partial_results_are_few_enough_to_be_reduced_one_by_one():
    found = find_rows(Request(row_reduce(8, 1024), machine(vector_bytes=128)))
    kept, pruned = found.space.feasible()
    assert pruned["partial results"] > 0
    assert (kept["vectors"] * kept["lanes"]).max() == 128
    # Vectors of half of that are never too wide.
    assert problem("rows").space.feasible()[1]["partial results"] == 0


@pytest.mark.parametrize("k", [1024, 4096])
@pytest.mark.parametrize("n", [1000, 520, 2520, 5000, 1021, 8])
@pytest.mark.parametrize("bits", [128, 512])
def test_every_size_has_a_plan(n, k, bits):
    """However many columns there are, a block may be one tile wide."""
    found = find_product(Request(matmul(8, n, k), machine(vector_bytes=bits // 8)))
    points, _ = found.space.feasible()
    assert points.size
    assert np.all(n % (points["vectors"] * points["lanes"]) == 0)


def test_lanes_come_from_the_target():
    from fuse_epilogue.planner.machines.cpu import cpu

    func = SMALL["product"][1]
    from fuse_epilogue.planner.problems.cpu import find_product

    for mcpu, lanes, registers in (("skylake-avx512", 16, 32), ("haswell", 8, 16)):
        found = find_product(Request(func, cpu({"kind": "llvm", "mcpu": mcpu})))
        assert max(found.space.by_name["lanes"].choices) == lanes
        limits = {c.name: c.limit for c in found.space.constraints}
        assert limits["registers"] == registers


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": 3}, "'rows' is one of"),
        ({"colour": 1}, "no variable 'colour'"),
        ({"rows": 16, "block_rows": 16}, "of 'registers', which has 8"),
    ],
)
def test_a_point_that_is_not_possible_is_refused(changed, message):
    found = problem("product", machine(registers=8))
    point = {**found.space.feasible()[0].at(0), **changed}
    with pytest.raises(ValueError, match=message):
        found.apply(point)


def test_a_missing_value_is_refused():
    found = problem("product")
    point = found.space.feasible()[0].at(0)
    del point["rows"]
    with pytest.raises(ValueError, match="no value for 'rows'"):
        found.apply(point)


def test_divisors():
    assert divisors(12, 5) == (1, 2, 3, 4)
    assert divisors(7, 16) == (1, 7)


class Counted(np.ndarray):
    """An array that counts the operations on it."""

    operations = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        Counted.operations += 1
        plain = [np.asarray(i) if isinstance(i, Counted) else i for i in inputs]
        made = getattr(ufunc, method)(*plain, **kwargs)
        return made.view(Counted) if isinstance(made, np.ndarray) else made


@pytest.mark.parametrize("name", ["product", "rows", "conv"])
def test_a_cost_takes_as_many_operations_for_many_points_as_for_few(name):
    found = problem(name)
    points, _ = found.space.feasible()
    counts = []
    for count in (points.size // 2, points.size):
        some = {name: array[:count].view(Counted) for name, array in points.values.items()}
        Counted.operations = 0
        found.cost(Points(some))
        counts.append(Counted.operations)
    assert 0 < counts[0] and abs(counts[1] - counts[0]) < 40
