"""Judging the programs of one chunk of a long run."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from fuse_epilogue.verify import CertificateError, check

from .baseline import for_tvm, tvms
from .compiled import Sampled, disagreements, sampled
from .reached import has_partial
from .shrink import MAX_ATTEMPTS, shrink
from .spec import Program
from .state import Run
from .strategy import random_program
from .tally import CERTIFICATE_REFUSED, Tally
from .verdict import ACCEPTED_EQUAL, CRASHED, ERROR, Verdict, judge, ours

# Of this many accepted programs, one is compiled (of those with an operand that is undefined
# somewhere, and of the others), and the certificate of one is checked.
COMPILE_EVERY_PARTIAL = 12
COMPILE_EVERY = 50
CERTIFICATE_EVERY = 10
MAX_SHRUNK = 3
# A candidate that has to be compiled takes as long as ten that do not.
MAX_COMPILED_CANDIDATES = 200
# How the details begin that `compiled` gives.
_COMPILED = ("compiled", "the compiled", "the function")


def program_of(seed: int, number: int) -> Program:
    """Return the n-th program of a seed."""
    return random_program(f"{seed}/{number}")


def run_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> dict[str, Any]:
    """Judge the programs of a range.

    Parameters
    ----------
    run : Run
    start, stop : int
    fatal : tuple[int, ...]
        Programs that ended the process before: they are not tried again.

    Returns
    -------
    dict
        Of JSON's types: counts, and the counterexamples.
    """
    chunk = _Chunk(run)
    for number in range(start, stop):
        program = program_of(run.seed, number)
        asked = for_tvm(program) if run.baseline else program
        if asked is None:
            continue
        if number in fatal:
            chunk.tally.add(number, asked, Verdict(ERROR, "the process died"))
        else:
            chunk.judge(number, asked)
    return chunk.finish()


class _Chunk:
    """The counts of a chunk, and the accepted programs that are still to be compiled."""

    def __init__(self, run: Run) -> None:
        self.tally = Tally()
        self._start = time.monotonic()
        self._baseline = run.baseline
        self._accepted = 0
        self._seen = Counter[bool]()
        self._sample: list[Sampled] = []
        # Tells which program it was, should the process come to its end.
        self._marker = run.folder / f"current-{os.getpid()}"

    def judge(self, number: int, program: Program) -> None:
        """Judge a program and count it, or lay it aside for compiling."""
        self._marker.write_text(str(number))
        verdict = judge(program, tvms if self._baseline else ours, seed=number)
        if verdict.kind == ACCEPTED_EQUAL and not self._baseline:
            self._accepted += 1
            if self._accepted % CERTIFICATE_EVERY == 1:
                self.tally.add_certificate(number, program, objection_to(verdict))
            partial = has_partial(program)
            self._seen[partial] += 1
            if self._seen[partial] % (COMPILE_EVERY_PARTIAL if partial else COMPILE_EVERY) == 1:
                entry = sampled(number, program, verdict)
                if entry is not None:
                    self._sample.append(entry)
                    return
        self.tally.add(number, program, verdict)

    def finish(self) -> dict[str, Any]:
        """Compile what was laid aside, make the counterexamples small, return the counts."""
        self._marker.write_text(",".join(str(entry.number) for entry in self._sample))
        different = dict(disagreements(self._sample))
        for entry in self._sample:
            equal = Verdict(ACCEPTED_EQUAL, "", entry.fusable)
            self.tally.add(entry.number, entry.program, different.get(entry.number, equal))
        self.tally.compiled += len(self._sample)
        if not self._baseline:
            for failure in self.tally.failures[:MAX_SHRUNK]:
                failure["shrunk"] = _shrunk(failure)
        self._marker.unlink(missing_ok=True)
        self.tally.seconds = time.monotonic() - self._start
        return self.tally.to_json()


def objection_to(verdict: Verdict) -> str:
    """Return what the checker says against the certificate of an accepted fusion, if anything."""
    try:
        check(verdict.before, verdict.after, verdict.certificate)
    except CertificateError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _shrunk(failure: dict[str, Any]) -> Any:
    """Return a smaller program with the same fault, or the program itself."""
    detail, number = failure["detail"], failure["number"]
    if detail.startswith("the process"):
        return failure["program"]
    wanted = (failure["verdict"], category(detail))
    compiled = wanted[0] == CRASHED or detail.startswith(
        ("compiled", "the compiled", "the function")
    )

    def still_wrong(candidate: Program) -> bool:
        verdict = judge(candidate, seed=number)
        if wanted[0] == CERTIFICATE_REFUSED:
            accepted = verdict.kind == ACCEPTED_EQUAL
            return accepted and category(objection_to(verdict)) == wanted[1]
        if compiled and verdict.kind == ACCEPTED_EQUAL:
            verdict = compiled_verdict(number, candidate, verdict)
        return (verdict.kind, category(verdict.detail)) == wanted

    program = Program.from_json(failure["program"])
    attempts = MAX_COMPILED_CANDIDATES if compiled else MAX_ATTEMPTS
    return shrink(program, still_wrong, attempts).to_json()


def compiled_verdict(number: int, program: Program, verdict: Verdict) -> Verdict:
    """Return the judgement of an accepted program after it was compiled and run, if it can be."""
    entry = sampled(number, program, verdict)
    return dict(disagreements([entry] if entry else [])).get(number, verdict)


def category(detail: str) -> str:
    """Return what a detail says, without the numbers: to tell one fault from another."""
    head = detail.partition("[")[0].partition(", not")[0]
    # What values differ on which data changes with the program, but not what ends a run.
    if " data: " in detail:
        head = "data" + detail.partition(" data: ")[2].partition(":")[0] * ("Error" in detail)
    elif detail.startswith("compiled: "):
        head = "compiled"
    return "".join(c for c in head if not c.isdigit())[:60].strip()
