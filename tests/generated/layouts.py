"""Index maps: how an epilogue finds an element of a stage, and where it stores its own.

Each is a row of a table. Dimensions and axes may be numbers or TIR expressions: only ``+ - * // %``
are used on them. ``split`` needs numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Dims = tuple[Any, ...]


@dataclass(frozen=True)
class Read:
    """How the axes of an epilogue give the element that it reads.

    Attributes
    ----------
    axes : Callable
        From the stage's extents to the extents of the axes.
    index : Callable
        From the stage's extents and the axes (counted from 0) to the element.
    fits : Callable
        Whether the map exists for these extents (numbers).
    symbolic : bool
        Whether it may be used where extents are unknown.
    """

    axes: Callable[[Dims], Dims]
    index: Callable[[Dims, Dims], Dims]
    fits: Callable[[Sequence[int]], bool] = lambda dims: True
    symbolic: bool = True


def _same(element: Dims) -> Dims:
    return element


@dataclass(frozen=True)
class Write:
    """How the axes of a block give the element that it stores.

    Attributes
    ----------
    dims : Callable
        From the extents of the axes to those of the stage, as later epilogues see it.
    element : Callable
        From the extents of the axes and the axes (counted from 0) to the element of the stage.
    shape : Callable
        From the extents of the stage to the shape of its buffer.
    place : Callable
        From an element of the stage to its place in the buffer.
    fits, symbolic
        As for `Read`.
    """

    dims: Callable[[Dims], Dims]
    element: Callable[[Dims, Dims], Dims]
    shape: Callable[[Dims], Dims] = _same
    place: Callable[[Dims], Dims] = _same
    fits: Callable[[Sequence[int]], bool] = lambda dims: True
    symbolic: bool = True


def factor(extent: int) -> int:
    """Return the smallest divisor above 1, or 0 for a prime."""
    return next((f for f in range(2, extent) if extent % f == 0), 0)


def _rank2(dims: Sequence[int]) -> bool:
    return len(dims) >= 2


def _composite(dims: Sequence[int]) -> bool:
    return factor(dims[0]) > 0


def _split(d: Dims) -> Dims:
    f = factor(d[0])
    return (d[0] // f, f, *d[1:])


# Fusable by the contract: the map is affine, with an inverse, and its domain is the whole stage.
READS: dict[str, Read] = {
    "identity": Read(lambda d: d, lambda d, a: a),
    "transposed": Read(lambda d: d[::-1], lambda d, a: a[::-1], _rank2),
    "rotated": Read(lambda d: (*d[1:], d[0]), lambda d, a: (a[-1], *a[:-1]), lambda d: len(d) >= 3),
    "split": Read(
        _split, lambda d, a: (a[0] * factor(d[0]) + a[1], *a[2:]), _composite, symbolic=False
    ),
    "fused": Read(
        lambda d: (d[0] * d[1], *d[2:]),
        lambda d, a: (a[0] // d[1], a[0] % d[1], *a[1:]),
        _rank2,
        symbolic=False,
    ),
    "unit axis": Read(lambda d: (1, *d), lambda d, a: a[1:]),
    "unit axis added": Read(lambda d: (1, *d), lambda d, a: (a[1] + a[0], *a[2:])),
    "unit axis left out": Read(
        lambda d: d[1:],
        lambda d, a: (0, *a),
        lambda d: d[0] == 1 and len(d) >= 2,
        symbolic=False,
    ),
}

# Fusable in principle, outside of the contract's "invertible affine map with a positive direction":
# right both when fused and when refused.
READS_BEYOND: dict[str, Read] = {
    "reversed": Read(lambda d: d, lambda d, a: (d[0] - 1 - a[0], *a[1:])),
    "skewed": Read(
        lambda d: d, lambda d, a: ((a[0] + a[1]) % d[0], *a[1:]), _rank2, symbolic=False
    ),
}

# Not fusable.
READS_WRONG: dict[str, Read] = {
    "slice": Read(lambda d: (d[0] - 1, *d[1:]), lambda d, a: a, lambda d: d[0] >= 2),
    "halo": Read(
        lambda d: (d[0] - 1, *d[1:]), lambda d, a: (a[0] + 1, *a[1:]), lambda d: d[0] >= 2
    ),
    # the value reads the element and the next one
    "neighbours": Read(lambda d: (d[0] - 1, *d[1:]), lambda d, a: a, lambda d: d[0] >= 2),
    # the value is 0 outside of the stage
    "padded": Read(lambda d: (d[0] + 2, *d[1:]), lambda d, a: (a[0] - 1, *a[1:])),
    "broadcast": Read(lambda d: (2, *d), lambda d, a: a[1:]),
    "every element twice": Read(
        lambda d: (2 * d[0], *d[1:]), lambda d, a: (a[0] % d[0], *a[1:]), symbolic=False
    ),
    "diagonal": Read(
        lambda d: d[1:],
        lambda d, a: (a[0], *a),
        lambda d: len(d) >= 2 and d[0] == d[1] >= 2,
        symbolic=False,
    ),
    "row 0": Read(
        lambda d: d[1:], lambda d, a: (0, *a), lambda d: len(d) >= 2 and d[0] >= 2, symbolic=False
    ),
    # the first index is loaded from a table
    "gather": Read(lambda d: d, lambda d, a: a),
}

# A place of its own for every element.
WRITES: dict[str, Write] = {
    "identity": Write(lambda d: d, lambda d, a: a),
    "transposed": Write(lambda d: d[::-1], lambda d, a: a[::-1], fits=_rank2),
    "split": Write(
        _split,
        lambda d, a: (a[0] // factor(d[0]), a[0] % factor(d[0]), *a[1:]),
        fits=_composite,
        symbolic=False,
    ),
    "fused": Write(
        lambda d: (d[0] * d[1], *d[2:]),
        lambda d, a: (a[0] * d[1] + a[1], *a[2:]),
        fits=_rank2,
        symbolic=False,
    ),
    "unit dimension": Write(lambda d: (1, *d), lambda d, a: (0, *a)),
    "offset": Write(
        lambda d: d,
        lambda d, a: a,
        lambda d: (d[0] + 1, *d[1:]),
        lambda e: (e[0] + 1, *e[1:]),
    ),
    "strided": Write(
        lambda d: d,
        lambda d, a: a,
        lambda d: (d[0] * 2, *d[1:]),
        lambda e: (e[0] * 2, *e[1:]),
    ),
}

WRITES_BEYOND: dict[str, Write] = {
    "reversed": Write(lambda d: d, lambda d, a: (d[0] - 1 - a[0], *a[1:]), symbolic=False),
}

# Several elements in one place.
WRITES_WRONG: dict[str, Write] = {
    "one row": Write(lambda d: d[1:], lambda d, a: a[1:], fits=lambda d: len(d) >= 2 and d[0] >= 2),
    "halved": Write(
        lambda d: ((d[0] + 1) // 2, *d[1:]),
        lambda d, a: (a[0] // 2, *a[1:]),
        fits=lambda d: d[0] >= 2,
        symbolic=False,
    ),
}

ALL_READS = {**READS, **READS_BEYOND, **READS_WRONG}
ALL_WRITES = {**WRITES, **WRITES_BEYOND, **WRITES_WRONG}
