"""Shapes of symbolic sizes: whether two have as many elements, and which axes belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any

from tvm.ir import prim


def axis_groups(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[range, range]] | None:
    """Return the axes of two shapes in groups of as many elements, None if there are none."""
    found = []
    i = j = 0
    while i < len(before) and j < len(after):
        first, second = i, j
        one, other = _factors(before[i]), _factors(after[j])
        i, j = i + 1, j + 1
        while one != other:
            if _is_part(one, other):
                if i == len(before):
                    return None
                one = _product(one, _factors(before[i]))
                i += 1
            elif j < len(after):
                other = _product(other, _factors(after[j]))
                j += 1
            else:
                return None
        found.append((range(first, i), range(second, j)))
    rest = (*before[i:], *after[j:])
    if not found or not is_same_count(rest, ()):
        return None
    left, right = found[-1]
    found[-1] = range(left.start, len(before)), range(right.start, len(after))
    return found


def is_same_count(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Return whether two shapes have as many elements."""
    one, other = (_of_shape(shape) for shape in (before, after))
    return one == other


def _of_shape(shape: Sequence[Any]) -> Counter[str]:
    return reduce(_product, map(_factors, shape), Counter({"": 1}))


def _is_part(one: Counter[str], other: Counter[str]) -> bool:
    """Whether a number of elements is to be multiplied to get to another one."""
    symbols = [Counter({name: n for name, n in each.items() if name}) for each in (one, other)]
    return one[""] < other[""] if symbols[0] == symbols[1] else symbols[0] <= symbols[1]


def _factors(size: Any) -> Counter[str]:
    """Return how often a size has each factor; under "" the product of the constant ones."""
    if isinstance(size, int | prim.IntImm):
        return Counter({"": int(size)})
    if isinstance(size, prim.Mul):
        return _product(_factors(size.a), _factors(size.b))
    return Counter({"": 1, str(size): 1})


def _product(one: Counter[str], other: Counter[str]) -> Counter[str]:
    found = one + other
    found[""] = one[""] * other[""]
    return found
