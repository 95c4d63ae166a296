"""Compare the outcomes of tests without the extension and with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .reasons import Reason
from .runs import Outcomes

# What a test has as its outcome on the side where it does not exist.
MISSING = "missing"


@dataclass(frozen=True)
class Difference:
    """A test with another outcome when the extension is loaded.

    - `hidden`, `loaded`: its outcomes.
    - `reason`: why this is right; empty if it is not listed.
    """

    test: str
    hidden: str
    loaded: str
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """What comparing two sides has found.

    - `expected`: those that are listed, with their reason.
    - `unstable`: tests whose outcome varies without the extension.
    - `stale`: listed tests that were run and do not differ.
    """

    expected: list[Difference] = field(default_factory=list)
    unexpected: list[Difference] = field(default_factory=list)
    unstable: list[Difference] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether exactly those tests differ that are listed."""
        return not self.unexpected and not self.stale


def differences(hidden: Outcomes, loaded: Outcomes) -> list[Difference]:
    """Return the tests whose outcomes differ, in the order of their names."""
    found = []
    for test in sorted(hidden.keys() | loaded.keys()):
        pair = hidden.get(test, MISSING), loaded.get(test, MISSING)
        if pair[0] != pair[1]:
            found.append(Difference(test, *pair))
    return found


def compare(
    hidden: Outcomes,
    loaded: Outcomes,
    reasons: Mapping[str, Reason],
    repeat_hidden: Callable[[list[str]], list[Outcomes]],
) -> Comparison:
    """Compare the outcomes of two sides.

    - `hidden`, `loaded`: the outcome of each test, without the extension and with it.
    - `reasons`: which tests may differ, with which outcome and why.
    - `repeat_hidden`: runs tests again without the extension, and returns the outcomes of each
      repetition. It is called with the tests that differ and are not listed.
    """
    result = Comparison()
    unlisted = []
    for one in differences(hidden, loaded):
        reason = reasons.get(one.test)
        if reason and reason.loaded == one.loaded:
            result.expected.append(Difference(one.test, one.hidden, one.loaded, reason.why))
        else:
            unlisted.append(one)
    repetitions = repeat_hidden([one.test for one in unlisted]) if unlisted else []
    for one in unlisted:
        stable = all(again.get(one.test, MISSING) == one.hidden for again in repetitions)
        (result.unexpected if stable else result.unstable).append(one)
    same = {test for test, outcome in hidden.items() if loaded.get(test) == outcome}
    result.stale.extend(sorted(reasons.keys() & same))
    return result


def count(found: Outcomes) -> dict[str, int]:
    """Return how many tests have each kind of outcome: without the type of an exception."""
    return dict(sorted(Counter(outcome.partition(":")[0] for outcome in found.values()).items()))
