"""Arrays of a function."""

from __future__ import annotations

import zlib

import numpy as np

from .spec import Function
from .text import parameters, script

#: Indices far outside of any table, but not outside of the address space.
_WILD = (-1, -(1 << 20), -(1 << 30))
_FILLS = {
    "small": (-3, -2, -1, 0, 1, 2, 3),
    "divisors": (0, 0, -7, -2, -1, 1, 3, 5),
    "shifts": (-1, 0, 1, 3, 8, 31, 32, 40, 1 << 30),
    "large": (-90, -7, 0, 5, 99, 50_000, 1 << 30, -(1 << 31)),
    "extreme": (-900.0, -2.5, 0.0, 3.0, 77.75, 3e9, -1e30, np.inf, -np.inf, np.nan),
}


def arrays(function: Function) -> list[np.ndarray]:
    """Return an array for each parameter; the last one, the result, holds garbage."""
    rng = np.random.default_rng(zlib.crc32(script(function).encode()))
    found = []
    for each in parameters(function):
        if each.fill in ("negative", "beyond"):
            # Some of the indices are of the table.
            short = next(
                other.shape[0] for other in parameters(function) if other.name == each.name[:-1]
            )
            wild = _WILD if each.fill == "negative" else (short, short + 1, 1 << 20, 1 << 30)
            choices = np.array([*wild, *range(short), *range(short)])
            made = rng.choice(choices, each.shape)
        elif each.fill == "garbage":
            made = np.full(each.shape, 77)
        else:
            made = rng.choice(np.array(_FILLS[each.fill]), each.shape)
        found.append(np.ascontiguousarray(made.astype(each.dtype)))
    return found
