"""Counts of verdicts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .spec import Program

#: Fused, and the same within the bound of rounding.
FUSED = "fused"
#: Of a fused one: a deferred factor is infinite, and NaN has become an infinity.
INFINITE = "infinite factor"
#: Refused, with a code; nothing has changed.
REFUSED = "refused"
#: Refused, and something has changed.
CHANGED = "refused and changed"
#: Fused, and not the same.
DIFFERENT = "accepted and different"
#: Anything else: an exception of another kind, or a formula that is not the program.
ERROR = "error"
#: Of a fused one: the checker does not prove its certificate.
UNPROVED = "certificate refused"
WRONG = (CHANGED, DIFFERENT, ERROR)


class Tally:
    """Counts of a run, or of a chunk of it.

    - `verdicts`, `codes`: how often each verdict, and each code of a refusal, came out.
    - `fusable`: the same verdicts of programs that a law covers.
    - `refused_fusable`: codes of refusals of programs that a law covers.
    - `failures` (list of dict): what is wrong.
    - `infinite` (int): fused programs in which NaN has become an infinity on some data.
    - `certificates` (int): certificates that were checked; those that were not proved are among the
      failures.
    - `unproved`: what the checker said against them.
    - `compiled` (int): fused programs that LLVM compiled as well.
    - `seconds` (float): of processes, added up.
    """

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.fusable: Counter[str] = Counter()
        self.refused_fusable: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.infinite = 0
        self.certificates = 0
        self.unproved: Counter[str] = Counter()
        self.compiled = 0
        self.seconds = 0.0

    @property
    def wrong(self) -> int:
        return sum(self.verdicts[kind] for kind in WRONG) + self.unproved.total()

    def add(self, number: int, program: Program, kind: str, detail: str) -> None:
        """Count a program."""
        self.verdicts[kind] += 1
        if program.fusable:
            self.fusable[kind] += 1
        self.infinite += kind == FUSED and detail == INFINITE
        if kind == REFUSED:
            self.codes[detail] += 1
            if program.fusable:
                self.refused_fusable[detail] += 1
        if kind in WRONG:
            self.failures.append(
                {"number": number, "verdict": kind, "detail": detail, "program": program.to_json()}
            )

    def add_certificate(self, number: int, program: Program, objection: str) -> None:
        """Count a certificate, and what the checker says against it, if anything."""
        self.certificates += 1
        if objection:
            self.unproved[objection.partition(":")[0]] += 1
            self.failures.append(
                {
                    "number": number,
                    "verdict": UNPROVED,
                    "detail": objection,
                    "program": program.to_json(),
                }
            )

    def merge(self, other: dict[str, Any]) -> None:
        """Add the counts of a chunk."""
        for name in ("verdicts", "codes", "fusable", "refused_fusable", "unproved"):
            getattr(self, name).update(other[name])
        self.failures += other["failures"]
        self.infinite += other["infinite"]
        self.certificates += other["certificates"]
        self.compiled += other["compiled"]
        self.seconds += other["seconds"]

    def to_json(self) -> dict[str, Any]:
        """Return everything, of JSON's types."""
        return {name: dict(v) if isinstance(v, Counter) else v for name, v in vars(self).items()}

    def summary(self) -> dict[str, Any]:
        """Return what a report says."""
        known = self.fusable.total()
        return {
            "verdicts": {kind: self.verdicts[kind] for kind in (FUSED, REFUSED, *WRONG)},
            "refusals": dict(self.codes.most_common()),
            "fusable": {
                "programs": known,
                "fused": self.fusable[FUSED],
                "share": round(self.fusable[FUSED] / known, 4) if known else None,
                "refusals": dict(self.refused_fusable.most_common()),
            },
            "infinite_factor": self.infinite,
            "certificates": self.certificates,
            "certificates_refused": self.unproved.total(),
            "compiled": self.compiled,
            "seconds_of_processes": round(self.seconds, 1),
        }
