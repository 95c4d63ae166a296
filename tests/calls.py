"""How much work something is, without a clock: the calls that it makes."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable


def calls(function: Callable[[], object]) -> int:
    """Count the calls that a function makes, of functions in Python and in C.

    The same on every machine. What a single call in C goes through, such as a list that is copied,
    counts as one.
    """
    profile = cProfile.Profile()
    profile.runcall(function)
    found: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return found
