"""The quick tier has every value of each dimension, both tiers together every combination."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tiers import crossed, enough, one_in, tiered


def is_full(param: Any) -> bool:
    return any(mark.name == "full" for mark in param.marks)


@pytest.mark.parametrize("sizes", [(1,), (3, 2), (2, 3), (3, 2, 2), (4, 4), (2, 2, 2, 5)])
def test_crossed(sizes: tuple[int, ...]) -> None:
    names = "abcd"[: len(sizes)]
    dimensions = {name: list(range(size)) for name, size in zip(names, sizes, strict=True)}
    found, params = crossed(**dimensions).args
    assert found == list(names)
    assert sorted(p.values for p in params) == list(itertools.product(*dimensions.values()))
    quick = [p.values for p in params if not is_full(p)]
    assert len(quick) == max(sizes)
    for place, size in enumerate(sizes):
        assert {row[place] for row in quick} == set(range(size))


def test_two_short_dimensions_do_not_go_together() -> None:
    _, params = crossed(a=[0, 1, 2, 3], b=[0, 1], c=[0, 1]).args
    quick = [p.values for p in params if not is_full(p)]
    assert {row[1:] for row in quick} == {(0, 0), (1, 1), (1, 0), (0, 1)}


def test_a_row_is_kept_for_a_new_value() -> None:
    rows = [{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 1, "b": "x"}]
    assert enough(rows) == [True, False, True, True]
    assert enough([{"a": 1}, {"b": 1}, {"a": "1"}]) == [True, True, True]


def test_tiered() -> None:
    params = tiered([{"a": 1}, {"a": 1}, {"a": 2}], lambda row: f"is {row['a']}")
    assert [(p.values, p.id, is_full(p)) for p in params] == [
        ((0,), "is 1", False),
        ((1,), "is 1", True),
        ((2,), "is 2", False),
    ]


def test_one_in() -> None:
    params = one_in(2, "abcde")
    assert [(*p.values, p.id) for p in params] == [(letter, letter) for letter in "abcde"]
    assert [is_full(p) for p in params] == [False, True, False, True, False]


def test_a_file_is_a_group_of_the_processes_that_share_the_tests(
    request: pytest.FixtureRequest,
) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("the tests are not shared by groups")
    assert request.node.nodeid.endswith("@test_tiers")
