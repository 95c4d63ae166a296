"""What a build of a program may compute, and what not."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import Bounded


def judge(
    what: str, expected: dict[str, Any], before: Any, after: Any, *, infinite: bool = False
) -> bool:
    """Demand that two builds compute what they must.

    Numbers without roundings (integers, selections) are the same. Others are within their bound,
    where it says something; where it does not (infinities, NaN, an overflow on the way) what is NaN
    in one build is NaN in the other, and so are infinities. Nothing is left open.

    - `what`: for the message.
    - `expected` (dict of str to Bounded or numpy.ndarray): by output.
    - `before`, `after` (dict of str to numpy.ndarray): outputs of the program before and after it
      is fused.
    - `infinite`: whether a factor may be infinite. Where it is deferred, a sum of infinities of
      both signs, which is NaN, becomes a product with infinity. A number never becomes NaN.
    - Returns: whether there was such a factor.
    """
    infinity = False
    for name, right in expected.items():
        for which, found in (("before", before[name]), ("after", after[name])):
            label = f"{what}, '{name}' {which}"
            if isinstance(right, Bounded):
                _within(label, right, found)
            else:
                np.testing.assert_array_equal(found, right, err_msg=label)
        if isinstance(right, Bounded):
            label = f"{what}, '{name}'"
            infinity |= _same_kind(label, right, before[name], after[name], infinite)
    return infinity


def known(right: Bounded) -> np.ndarray:
    """Where a bound says something."""
    largest = right.rules.largest
    with np.errstate(all="ignore"):
        finite = np.isfinite(right.value) & np.isfinite(right.error)
        return finite & (abs(right.value) + right.error <= largest)


def _within(what: str, right: Bounded, found: np.ndarray) -> None:
    assert found.shape == right.shape, f"{what}: shape {found.shape}, not {right.shape}"
    where = known(right)
    with np.errstate(all="ignore"):
        off = abs(found.astype(np.longdouble) - right.value)
        wrong = where & ~(off <= right.error)
    if wrong.any():
        at = tuple(int(part) for part in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{what}{list(at)}: {found[at]} is not within {float(right.error[at]):.3g} of "
            f"{float(right.value[at]):.9g} ({wrong.sum()} of {wrong.size} elements)"
        )


def _same_kind(
    what: str, right: Bounded, before: np.ndarray, after: np.ndarray, infinite: bool
) -> bool:
    """Where the bound says nothing: the same infinities and NaN."""
    open_ = ~known(right)
    special = open_ & ~(np.isfinite(before) & np.isfinite(after))
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    # Where a divisor is zero up to rounding, nothing is known.
    unsure = np.isfinite(right.value) & np.isnan(right.error)
    wrong = special & ~same & ~unsure
    # A sum that overflows may do so in one order alone.
    overflows = np.isposinf(right.error) & np.isfinite(right.value)
    wrong &= ~(overflows & ~np.isnan(after))
    factor = wrong & np.isnan(before) & np.isinf(after)
    if infinite:
        wrong &= ~factor
    if wrong.any():
        at = tuple(int(part) for part in np.argwhere(wrong)[0])
        raise AssertionError(f"{what}{list(at)}: {before[at]} before, {after[at]} after")
    return bool(factor.any())
