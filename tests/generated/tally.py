"""Counting verdicts: over all programs, by monoid and by feature."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from .expressions import walk
from .reached import has_partial
from .spec import Program
from .verdict import REFUSED_THOUGH_FUSABLE, VERDICTS, WRONG, Verdict

MAX_FAILURES = 25
CERTIFICATE_REFUSED = "certificate-refused"


def features(program: Program) -> Iterator[str]:
    """Yield what a program is made of, as ``field=value``."""
    reduction = program.reduction
    yield f"accumulator={reduction.accumulator}"
    for field in ("term", "update", "init", "layout"):
        yield f"{field}={getattr(reduction, field)}"
    if reduction.fault:
        yield f"reduction fault={reduction.fault}"
    yield f"epilogues={len(program.epilogues)}"
    yield f"call={program.call}"
    yield f"numerics={program.numerics}"
    yield f"distribute={program.distribute}"
    yield f"symbolic={program.symbolic}"
    yield f"index={program.index}"
    yield f"result is a parameter={reduction.parameter}"
    yield f"reduction loop outermost={reduction.order[0] >= len(reduction.spatial)}"
    yield f"operand undefined somewhere={has_partial(program)}"
    yield f"several readers={sum(e.stage == 0 for e in program.epilogues) > 1}"
    seen = {f"hazard={hazard.kind}" for hazard in program.hazards}
    seen |= {f"step={step.kind}" for step in program.steps}
    for epilogue in program.epilogues:
        seen |= {f"read={epilogue.read}", f"write={epilogue.write}", f"output={epilogue.dtype}"}
        seen |= {f"operation={node[0]}" for node in walk(epilogue.expr)}
        for name in ("alias", "predicate", "fault"):
            if getattr(epilogue, name):
                seen.add(f"{name}={getattr(epilogue, name)}")
    yield from sorted(seen)


class Tally:
    """Counts of verdicts.

    Attributes
    ----------
    failures : list
        What was wrong, as JSON: verdict, detail, number and program.
    compiled : int
        Programs that were compiled too.
    certificates : int
        Fusions whose certificate was checked.
    refused_certificates : int
        Those that the checker did not believe.
    seconds : float
        How long the chunks took, those of an interrupted run included.
    """

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.fusable = 0
        self.fused = 0
        self.compiled = 0
        self.certificates = 0
        self.refused_certificates = 0
        self.seconds = 0.0
        self.codes: Counter[str] = Counter()
        self.unfused: Counter[str] = Counter()
        self.by_monoid: dict[str, Counter[str]] = defaultdict(Counter)
        self.by_feature: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[dict[str, Any]] = []

    @property
    def programs(self) -> int:
        """How many programs were judged."""
        return sum(self.verdicts.values())

    @property
    def wrong(self) -> int:
        """How many verdicts there are that must not be, with the certificates not believed."""
        return sum(self.verdicts[kind] for kind in WRONG) + self.refused_certificates

    @property
    def share_fused(self) -> float:
        """The part of the fusable programs that was fused."""
        return self.fused / self.fusable if self.fusable else 1.0

    def add(self, number: int, program: Program, verdict: Verdict) -> None:
        """Count a program."""
        self.verdicts[verdict.kind] += 1
        self.by_monoid[program.reduction.monoid][verdict.kind] += 1
        for feature in features(program):
            self.by_feature[feature][verdict.kind] += 1
        if verdict.fusable:
            self.fusable += 1
            self.fused += verdict.kind not in (REFUSED_THOUGH_FUSABLE, *WRONG)
        if verdict.kind == REFUSED_THOUGH_FUSABLE:
            self.unfused[verdict.detail.partition(" leaves")[0]] += 1
        if verdict.kind == "refused-rightly":
            self.codes[verdict.detail] += 1
        if verdict.kind in WRONG:
            self._fail(number, program, verdict.kind, verdict.detail)

    def add_certificate(self, number: int, program: Program, objection: str) -> None:
        """Count a certificate, and what the checker said against it, if anything."""
        self.certificates += 1
        if objection:
            self.refused_certificates += 1
            self._fail(number, program, CERTIFICATE_REFUSED, objection)

    def _fail(self, number: int, program: Program, verdict: str, detail: str) -> None:
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(
                {
                    "verdict": verdict,
                    "detail": detail,
                    "number": number,
                    "program": program.to_json(),
                }
            )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON's types."""
        return {
            "verdicts": dict(self.verdicts),
            "fusable": self.fusable,
            "fused": self.fused,
            "compiled": self.compiled,
            "certificates": self.certificates,
            "refused_certificates": self.refused_certificates,
            "seconds": self.seconds,
            "codes": dict(self.codes),
            "unfused": dict(self.unfused),
            "by_monoid": {name: dict(counts) for name, counts in self.by_monoid.items()},
            "by_feature": {name: dict(counts) for name, counts in self.by_feature.items()},
            "failures": self.failures,
        }

    def merge(self, counts: dict[str, Any]) -> None:
        """Add the counts that `to_json` of another one gave."""
        self.verdicts.update(counts["verdicts"])
        self.fusable += counts["fusable"]
        self.fused += counts["fused"]
        self.compiled += counts["compiled"]
        self.certificates += counts["certificates"]
        self.refused_certificates += counts["refused_certificates"]
        self.seconds += counts["seconds"]
        self.codes.update(counts["codes"])
        self.unfused.update(counts["unfused"])
        for name, found in counts["by_monoid"].items():
            self.by_monoid[name].update(found)
        for name, found in counts["by_feature"].items():
            self.by_feature[name].update(found)
        self.failures += counts["failures"]

    def summary(self) -> dict[str, Any]:
        """Return the counts for a report, in a fixed order."""
        return {
            "programs": self.programs,
            "verdicts": {kind: self.verdicts[kind] for kind in VERDICTS},
            "with_undefined_operands": sum(
                self.by_feature["operand undefined somewhere=True"].values()
            ),
            "fusable": self.fusable,
            "fused": self.fused,
            "percent_fused": round(100 * self.share_fused, 2),
            "compiled_too": self.compiled,
            "certificates_checked": self.certificates,
            "certificates_refused": self.refused_certificates,
            "process_seconds": round(self.seconds, 1),
            "refusal_codes": dict(sorted(self.codes.items())),
            "codes_of_unfused": dict(sorted(self.unfused.items())),
            "by_monoid": _in_order(self.by_monoid),
            "by_feature": _in_order(self.by_feature),
        }


def _in_order(table: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {
        name: {kind: table[name][kind] for kind in VERDICTS if table[name][kind]}
        for name in sorted(table)
    }
