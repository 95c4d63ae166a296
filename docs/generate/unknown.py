"""Shows a result of which no more is known than that it is JSON: tables of what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .numbers import is_spread, number, ratio
from .rst import table, text, title

#: Names that a page shows already, or that are not figures.
_SAID = {
    "benchmark",
    "date",
    "machine",
    "target",
    "threads",
    "versions",
    "what",
    "version",
    "clock",
}
#: Characters of a cell, and columns of a table, at most.
_LONG, _MOST = 60, 12


def sections(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a page: a table of single values, and one for each group of rows."""
    yield from _object({name: value for name, value in data.items() if name not in _SAID}, 1)


def _object(data: Mapping[str, Any], level: int) -> Iterator[str]:
    single = {name: value for name, value in data.items() if _is_single(value)}
    if single:
        rows = [(text(_words(name)), _cell(name, value)) for name, value in single.items()]
        yield table(("figure", "value"), rows)
    for name, value in data.items():
        if name in single or name.startswith("samples"):
            continue
        rows = _rows(value)
        if rows:
            yield title(_words(name), min(level, 2))
            yield _table(rows)
        elif isinstance(value, Mapping) and level < 4:
            yield title(_words(name), min(level, 2))
            yield from _object(value, level + 1)


def _rows(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return rows with their names and their single values; none if the value is no such table."""
    if isinstance(value, list):
        named = [(str(place), each) for place, each in enumerate(value, 1)]
    elif isinstance(value, Mapping):
        named = list(value.items())
    else:
        return []
    if not named or not all(isinstance(each, Mapping) for _, each in named):
        return []
    rows = [(name, dict(_leaves(each))) for name, each in named]
    return rows if all(leaves for _, leaves in rows) else []


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if name.startswith("samples"):
            continue
        if _is_single(each):
            yield prefix + name, each
        elif isinstance(each, Mapping) and not prefix:
            yield from _leaves(each, f"{name}: ")


def _table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    columns = list(dict.fromkeys(name for _, leaves in rows for name in leaves))[:_MOST]
    return table(
        ("", *(text(_words(column)) for column in columns)),
        [
            (text(name), *(_cell(column, leaves.get(column, "")) for column in columns))
            for name, leaves in rows
        ],
    )


def _is_single(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONG
    return value is None or isinstance(value, int | float) or is_spread(value)


def _cell(name: str, value: Any) -> str:
    if is_spread(value):
        return ratio(value)
    if value is None:
        return ""
    # A group of times says so by its own name.
    named = name.partition(": ")[0] if name.partition(": ")[0].endswith("_s") else name
    return text(number(named, value))


def _words(name: str) -> str:
    return ": ".join(part.removesuffix("_s") for part in name.split(": ")).replace("_", " ")
