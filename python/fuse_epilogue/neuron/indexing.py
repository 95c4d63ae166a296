"""Indices into one dimension of a view."""

from __future__ import annotations

from typing import Any

from .errors import Refused
from .values import Ds


def progression(item: Any, size: int, name: str, at: int) -> tuple[int, int, int]:
    """Return start, step and count of one index into a dimension.

    As in Python, indices and bounds of slices below 0 count from the end.
    """
    if type(item) is int:
        start, step, count = _from_end(item, size), 1, 1
    elif isinstance(item, slice):
        start = 0 if item.start is None else item.start
        stop = size if item.stop is None else item.stop
        step = 1 if item.step is None else item.step
        if not (type(start) is type(stop) is type(step) is int) or step < 1:
            raise Refused("language", "slices have integer bounds and a positive step")
        start, stop = _from_end(start, size), _from_end(stop, size)
        count = -(-(stop - start) // step)
        if stop > size:
            raise Refused("out-of-bounds", _outside(item, size, name, at))
    elif isinstance(item, Ds):
        start, step, count = item.start, 1, item.size
    else:
        raise Refused("language", "tiles are indexed by integers, slices and nl.ds(start, size)")
    if start < 0 or start + step * (count - 1) >= size:
        raise Refused("out-of-bounds", _outside(item, size, name, at))
    if count < 1:
        raise Refused(
            "out-of-bounds", f"index {_shown(item, size)} in dimension {at} of '{name}' is empty"
        )
    return start, step, count


def _from_end(index: int, size: int) -> int:
    return index + size if index < 0 else index


def _outside(item: Any, size: int, name: str, at: int) -> str:
    return f"index {_shown(item, size)} in dimension {at} of '{name}' ({size})"


def _shown(item: Any, size: int) -> str:
    """Return an index as messages say it: with both bounds, and a step that is not 1."""
    if isinstance(item, Ds):
        return f"nl.ds({item.start}, {item.size})"
    if isinstance(item, slice):
        stop = size if item.stop is None else item.stop
        text = f"{item.start or 0}:{stop}"
        return text if item.step in (None, 1) else f"{text}:{item.step}"
    return str(item)
