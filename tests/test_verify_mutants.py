"""A fused function changed anywhere, or its certificate: refused, or it still computes the same.

Every change is small and keeps types: a number, an operator, an index, a buffer, a statement. What
the checker accepts is proved equivalent by the other half of `verify`, which knows no certificates.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

import certificate_fuzz
from certificate_fuzz import verdict
from certified import certified
from programs import BY_NAME
from verify_mutator import Mutator

NAMES = (
    "bias_then_relu",
    "two_blocks",
    "in_place",
    "transposing_tails",
    "flat_epilogue_transposing",
    "tail_everything_tiled",
    "tail_threads",
    "float32_max_times_minus_two_if_asked",
    "int8_masked_or_if_asked",
    "relu_of_an_exact_sum",
    "intermediate_read_by_a_reduction",
    "epilogue_at_row",
)
EACH = 120


@pytest.mark.parametrize("name", NAMES)
def test_mutants_are_refused_or_equal(name: str) -> None:
    given = certified(name)
    case = BY_NAME[name]
    rng = random.Random(name)
    counts: Counter[str] = Counter()
    for _ in range(EACH):
        after = Mutator(given.after, rng).mutant()
        if after is None:
            continue
        counts[verdict(replace(given, after=after), case.numerics, case.sizes[0])] += 1
    assert counts["accepted and different"] == 0
    # The test is worth something only if there are mutants, and nearly all of them matter.
    assert counts["refused"] > EACH / 4


CHANGES = 40


def test_certificates_with_one_field_changed() -> None:
    """Every field of some certificate is changed; `certificate_fuzz` tries more."""
    changed: Counter[str] = Counter()
    for name in certificate_fuzz.NAMES:
        verdicts, names = certificate_fuzz.fuzz(name, CHANGES, 1)
        assert verdicts["accepted and different"] == 0, name
        assert verdicts["refused"] > CHANGES / 5, name
        changed += names
    given = certified("bias_then_relu").certificate
    wanted = {f".{field.name}" for field in fields(given)}
    for part in ("epilogues", "tails"):
        wanted |= {f"{part}.{field.name}" for field in fields(getattr(given, part)[0])}
    assert wanted == set(changed)


def test_the_counts_of_a_run_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "counts.json"
    argv = ["certificate_fuzz", "--each", "6", "--output", str(out), "two_blocks"]
    monkeypatch.setattr("sys.argv", argv)
    assert certificate_fuzz.main() == 0
    report = json.loads(out.read_text())
    verdicts, fields = certificate_fuzz.fuzz("two_blocks", 6, 1)
    assert report["wrong"] == 0
    assert report["fusions"] == {"two_blocks": dict(verdicts)}
    assert report["fields"] == dict(fields)
    monkeypatch.setattr(certificate_fuzz, "verdict", lambda *_: certificate_fuzz.WRONG)
    assert certificate_fuzz.main() == 1
