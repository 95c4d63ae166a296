"""The counts of a run, as a file of results and as lines for the terminal."""

from __future__ import annotations

import datetime
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from generated.report import versions_and_machine

from . import PACKAGES, ROOT
from .equivalent import why_equivalent
from .judging import KILLED, SURVIVED, UNTESTED

sys.path.append(str(ROOT / "benchmarks"))

from provenance import provenance  # noqa: E402


def report(outcomes: Mapping[str, dict[str, Any]], drawn: int, seed: int) -> dict[str, Any]:
    """Return what is written to the file of results.

    - `outcomes` (Mapping[str, dict[str, Any]]): what became of each fault.
    - `drawn`, `seed`: number of mutants of Python that were drawn, and where drawing began.
    """
    kinds: dict[str, Counter[str]] = {}
    for outcome in outcomes.values():
        kinds.setdefault(outcome["kind"], Counter())[outcome["verdict"]] += 1
    return {
        "benchmark": "mutants",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **provenance("mutants"),
        **versions_and_machine(workers=1),
        "tests": "the quick tier: make test",
        "seed": seed,
        "drawn": drawn,
        "packages": list(PACKAGES),
        "counts": {kind: dict(sorted(counts.items())) for kind, counts in sorted(kinds.items())},
        "faults": {name: _judged(outcomes[name]) for name in sorted(outcomes)},
    }


def _judged(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return an outcome, with the reason if the mutant could not be noticed."""
    why = why_equivalent(outcome.get("change", []))
    return {**outcome, "equivalent": why} if why and outcome["verdict"] != KILLED else outcome


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return a table of the counts, and the faults that no test noticed."""
    verdicts = (KILLED, SURVIVED, UNTESTED)
    table = [f"{'fault':24}" + "".join(f"{verdict:>22}" for verdict in verdicts)]
    for kind, counts in found["counts"].items():
        table.append(f"{kind:24}" + "".join(f"{counts.get(each, 0):22}" for each in verdicts))
    left = [
        f"  {name}: {' '.join(fault.get('change', []))}"
        for name, fault in found["faults"].items()
        if fault["verdict"] != KILLED and "equivalent" not in fault
    ]
    return [*table, *(["not noticed:"] if left else []), *left]
