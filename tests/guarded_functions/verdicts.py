"""What becomes of a function, and how often."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from .spec import Function

EQUAL = "equal"
REFUSED = "refused"
DIFFERENT = "different"
FAULT = "fault"
ERROR = "error"
UNDEFINED = "undefined"
VERDICTS = (EQUAL, REFUSED, DIFFERENT, FAULT, ERROR, UNDEFINED)
#: Those that must not be.
WRONG = (DIFFERENT, FAULT, ERROR)
_MOST_FAILURES = 25


@dataclass(frozen=True)
class Verdict:
    """What became of a function.

    - `kind`: one of `VERDICTS`: the same as the unscheduled function; refused, for a reason;
      another result; an access or an operation that is not defined; an exception that is no
      refusal; the unscheduled function is not compiled by TVM or ends the process: then nothing is
      right.
    """

    kind: str
    detail: str = ""


class Refused(Exception):
    """A function is not scheduled; the message is the reason, without names and numbers."""


class Tally:
    """Counts of verdicts; see ``generated.tally`` for how a run uses it."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.by: dict[str, Counter[str]] = {}
        self.reasons: Counter[str] = Counter()
        self.seconds = 0.0
        self.failures: list[dict[str, Any]] = []

    @property
    def wrong(self) -> int:
        """How many verdicts there are that must not be."""
        return sum(self.verdicts[kind] for kind in WRONG)

    def add(self, number: int, function: Function, way: str, verdict: Verdict) -> None:
        """Count a function."""
        self.verdicts[verdict.kind] += 1
        for feature in (f"way={way}", *_features(function)):
            self.by.setdefault(feature, Counter())[verdict.kind] += 1
        if verdict.kind == REFUSED:
            self.reasons[f"{way}: {verdict.detail}"] += 1
        if verdict.kind in WRONG and len(self.failures) < _MOST_FAILURES:
            self.failures.append(
                {
                    "verdict": verdict.kind,
                    "detail": verdict.detail,
                    "number": number,
                    "way": way,
                    "function": function.to_json(),
                }
            )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON's types."""
        return {
            "verdicts": dict(self.verdicts),
            "by": {name: dict(counts) for name, counts in self.by.items()},
            "reasons": dict(self.reasons),
            "seconds": self.seconds,
            "failures": self.failures,
        }

    def merge(self, counts: dict[str, Any]) -> None:
        """Add the counts that `to_json` of another one gave."""
        self.verdicts.update(counts["verdicts"])
        for name, found in counts["by"].items():
            self.by.setdefault(name, Counter()).update(found)
        self.reasons.update(counts["reasons"])
        self.seconds += counts["seconds"]
        self.failures += counts["failures"]

    def summary(self) -> dict[str, Any]:
        """Return the counts for a report, in a fixed order."""
        return {
            "functions": sum(self.verdicts.values()),
            "verdicts": {kind: self.verdicts[kind] for kind in VERDICTS},
            "process_seconds": round(self.seconds, 1),
            "refusals": dict(self.reasons.most_common()),
            "by": {
                name: {kind: self.by[name][kind] for kind in VERDICTS if self.by[name][kind]}
                for name in sorted(self.by)
            },
        }


def _features(function: Function) -> list[str]:
    found = {f"kind={function.kind}", f"dtype={function.dtype}", f"steps={len(function.steps)}"}
    for guarded in function.guarded:
        found |= {f"operand={guarded.operand}", f"guard={guarded.guard}"}
    found |= {f"op={step.op}" for step in function.steps}
    found |= {"whole step guarded"} if any(step.whole for step in function.steps) else set()
    found |= {"guarded start"} if function.init is not None else set()
    found |= {"missing weights"} if function.taps else set()
    return sorted(found)
