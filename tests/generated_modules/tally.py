"""Counting verdicts: over all modules, and by operator."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from .spec import Module
from .verdict import EQUAL, VERDICTS, WRONG, Verdict

MAX_FAILURES = 25


class Tally:
    """Counts of verdicts.

    - `counts`: modules with a guarded operand, of whole numbers only, and with special values.
    - `oracle`: what ONNX Runtime had to say.
    - `passes`: by numerics: reductions found and fused, and the codes of the others.
    - `by_operator`: the verdicts of the modules that have an operator.
    - `failures` (list): every module that is not equal, as JSON.
    - `seconds` (float): how long the chunks took.
    """

    def __init__(self) -> None:
        """Start with nothing counted."""
        self.verdicts: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.oracle: Counter[str] = Counter()
        self.passes: dict[str, Counter[str]] = defaultdict(Counter)
        self.by_operator: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[dict[str, Any]] = []
        self.seconds = 0.0

    @property
    def wrong(self) -> int:
        """How many verdicts there are that must not be."""
        return sum(self.verdicts[kind] for kind in WRONG)

    def add(self, number: int, module: Module, verdict: Verdict) -> None:
        """Count a module."""
        self.verdicts[verdict.kind] += 1
        self.counts["with a guarded operand"] += module.guarded
        self.counts["compared on special values"] += verdict.nasty
        self.counts["several outputs"] += len(module.outputs) > 1
        self.oracle[verdict.oracle] += 1
        for name, report in verdict.reports.items():
            self.passes[name].update({"found": report["found"], "fused": report["fused"]})
            self.passes[name].update(report["codes"])
        for name in {node.op for node in module.nodes}:
            self.by_operator[name][verdict.kind] += 1
        if verdict.kind != EQUAL and len(self.failures) < MAX_FAILURES:
            self.failures.append(
                {
                    "verdict": verdict.kind,
                    "detail": verdict.detail,
                    "number": number,
                    "program": module.to_json(),
                }
            )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON's types."""
        return {
            "verdicts": dict(self.verdicts),
            "counts": dict(self.counts),
            "oracle": dict(self.oracle),
            "passes": {name: dict(counts) for name, counts in self.passes.items()},
            "by_operator": {name: dict(counts) for name, counts in self.by_operator.items()},
            "seconds": self.seconds,
            "failures": self.failures,
        }

    def merge(self, counts: dict[str, Any]) -> None:
        """Add the counts that `to_json` of another one gave."""
        self.verdicts.update(counts["verdicts"])
        self.counts.update(counts["counts"])
        self.oracle.update(counts["oracle"])
        for name, found in counts["passes"].items():
            self.passes[name].update(found)
        for name, found in counts["by_operator"].items():
            self.by_operator[name].update(found)
        self.seconds += counts["seconds"]
        self.failures += counts["failures"]

    def summary(self) -> dict[str, Any]:
        """Return the counts for a report, in a fixed order."""
        return {
            "modules": sum(self.verdicts.values()),
            "verdicts": {kind: self.verdicts[kind] for kind in VERDICTS},
            **dict(sorted(self.counts.items())),
            "onnx_runtime": dict(sorted(self.oracle.items())),
            "passes": {name: dict(sorted(found.items())) for name, found in self.passes.items()},
            "by_operator": {
                name: {kind: found[kind] for kind in VERDICTS if found[kind]}
                for name, found in sorted(self.by_operator.items())
            },
            "process_seconds": round(self.seconds, 1),
        }
