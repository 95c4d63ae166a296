"""Counting verdicts on functions: over all, by kind, and by what a function is made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from .operands import OPERANDS
from .spec import Function, Operand
from .verdict import NOT_SCHEDULED, VERDICTS, WRONG, Verdict

MAX_FAILURES = 25


def features(function: Function) -> Iterator[str]:
    """Yield what a function is made of, as ``field=value``."""
    yield f"kind={function.kind}"
    yield f"types={function.source} into {function.accumulator}"
    yield f"stages={len(function.stages)}"
    yield f"tight={function.tight}"
    for name, value in sorted(function.form.items()):
        yield f"{name}={value}"
    operands = [stage.operand for stage in function.stages]
    operands += [] if function.start is None else [function.start]
    found = {f"operation={stage.operation}" for stage in function.stages}
    for operand in operands:
        found |= {f"operand={operand.kind}", f"guard={operand.guard}", f"axes={operand.axes}"}
    yield f"guarded={is_guarded(function, operands)}"
    yield from sorted(found)


def is_guarded(function: Function, operands: list[Operand]) -> bool:
    """Whether a function has something that is defined only where a guard holds."""
    guarded = any(OPERANDS[operand.kind].condition for operand in operands)
    return guarded or function.form.get("guard", "none") != "none"


class Tally:
    """Counts of verdicts.

    - `schedules` (int): how many were compared with the function as it is.
    - `seconds` (float): how long the chunks took, those of an interrupted run included.
    - `failures` (list): what was wrong, as JSON: verdict, detail, number and program.
    """

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.schedules = 0
        self.seconds = 0.0
        self.by_feature: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[dict[str, Any]] = []

    @property
    def programs(self) -> int:
        """How many functions were judged."""
        return sum(self.verdicts.values())

    @property
    def wrong(self) -> int:
        """How many verdicts there are that must not be."""
        return sum(self.verdicts[kind] for kind in WRONG)

    def add(self, number: int, function: Function, verdict: Verdict) -> None:
        """Count a function."""
        self.verdicts[verdict.kind] += 1
        self.schedules += verdict.schedules
        self.ways.update(way.split()[0] for way in verdict.ways)
        for feature in features(function):
            self.by_feature[feature][verdict.kind] += 1
        if verdict.kind in WRONG and len(self.failures) < MAX_FAILURES:
            self.failures.append(
                {
                    "verdict": verdict.kind,
                    "detail": verdict.detail,
                    "number": number,
                    "program": function.to_json(),
                }
            )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON's types."""
        return {
            "verdicts": dict(self.verdicts),
            "ways": dict(self.ways),
            "schedules": self.schedules,
            "seconds": self.seconds,
            "by_feature": {name: dict(counts) for name, counts in self.by_feature.items()},
            "failures": self.failures,
        }

    def merge(self, counts: dict[str, Any]) -> None:
        """Add the counts that `to_json` of another one gave."""
        self.verdicts.update(counts["verdicts"])
        self.ways.update(counts["ways"])
        self.schedules += counts["schedules"]
        self.seconds += counts["seconds"]
        for name, found in counts["by_feature"].items():
            self.by_feature[name].update(found)
        self.failures += counts["failures"]

    def summary(self) -> dict[str, Any]:
        """Return the counts for a report, in a fixed order."""
        scheduled = self.programs - self.verdicts[NOT_SCHEDULED]
        return {
            "functions": self.programs,
            "scheduled": scheduled,
            "schedules_compared": self.schedules,
            "guarded": sum(self.by_feature["guarded=True"].values()),
            "verdicts": {kind: self.verdicts[kind] for kind in VERDICTS},
            "process_seconds": round(self.seconds, 1),
            "schedules_by_source": dict(sorted(self.ways.items())),
            "by_feature": {
                name: {kind: counts[kind] for kind in VERDICTS if counts[kind]}
                for name, counts in sorted(self.by_feature.items())
            },
        }
