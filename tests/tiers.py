"""Which tests of a covering the quick tier keeps: as many as together have every value.

`make test` leaves out what is marked `full`, `make test-all` does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest


def enough(rows: Iterable[Mapping[str, Any]]) -> list[bool]:
    """For each row, whether it has a value that no row before it has: these are kept."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for row in rows:
        values = {(name, repr(value)) for name, value in row.items()}
        kept.append(not values <= seen)
        seen |= values
    return kept


def tiered(cases: Sequence[Mapping[str, Any]], name_of: Callable[[Any], str] = str) -> list[Any]:
    """Numbers of `cases` as parameters of a test; those that the quick tier can spare are marked.

    - `cases`: combinations of choices: a value for each name.
    - `name_of`: the name of a case in that of its test.
    """
    return [
        pytest.param(number, id=name_of(case), marks=() if kept else pytest.mark.full)
        for number, (case, kept) in enumerate(zip(cases, enough(cases), strict=True))
    ]


def one_in(step: int, values: Iterable[Any], name_of: Callable[[Any], str] = str) -> list[Any]:
    """`values` as parameters of a test, of which the quick tier keeps one in `step`."""
    return [
        pytest.param(value, id=name_of(value), marks=pytest.mark.full if number % step else ())
        for number, value in enumerate(values)
    ]


def crossed(**dimensions: Sequence[Any]) -> Any:
    """Parametrize a test with every combination of `dimensions`; the quick tier keeps a few.

    As many as the longest dimension has values, in which every value of each dimension is; the
    dimensions change at different rates, so that not always the same values meet.
    """
    most = max(map(len, dimensions.values()))
    quick = [
        tuple(
            values[(number + place * (number // len(values))) % len(values)]
            for place, values in enumerate(dimensions.values())
        )
        for number in range(most)
    ]
    rest = [row for row in itertools.product(*dimensions.values()) if row not in quick]
    return pytest.mark.parametrize(
        list(dimensions),
        [
            *(pytest.param(*row, id=_joined(row)) for row in quick),
            *(pytest.param(*row, id=_joined(row), marks=pytest.mark.full) for row in rest),
        ],
    )


def _joined(row: Sequence[Any]) -> str:
    """The name of a combination in that of its test."""
    return "-".join(str(value).replace(" ", "") for value in row)
