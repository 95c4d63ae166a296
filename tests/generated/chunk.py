"""Judging the programs of one chunk of a long run."""

from __future__ import annotations

import os
import time
from typing import Any

from fuse_epilogue.verify import CertificateError, check

from .baseline import for_tvm, tvms
from .compiled import Sampled, disagreements, sampled
from .shrink import shrink
from .spec import Program
from .state import Run
from .strategy import random_program
from .tally import CERTIFICATE_REFUSED, Tally
from .verdict import ACCEPTED_DIFFERENT, ACCEPTED_EQUAL, ERROR, Verdict, judge, ours

# Of so many accepted programs, one is compiled, and the certificate of one is checked.
COMPILE_EVERY = 50
CERTIFICATE_EVERY = 10
MAX_SHRUNK = 3


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
            if self._accepted % COMPILE_EVERY == 1:
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
            found = different.get(entry.number, "")
            kind = ACCEPTED_DIFFERENT if found else ACCEPTED_EQUAL
            self.tally.add(entry.number, entry.program, Verdict(kind, found, entry.fusable))
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
    if failure["detail"].startswith(("compiled", "the compiled", "the function", "the process")):
        return failure["program"]
    wanted = (failure["verdict"], category(failure["detail"]))

    def still_wrong(candidate: Program) -> bool:
        verdict = judge(candidate, seed=failure["number"])
        if wanted[0] == CERTIFICATE_REFUSED:
            accepted = verdict.kind == ACCEPTED_EQUAL
            return accepted and category(objection_to(verdict)) == wanted[1]
        return (verdict.kind, category(verdict.detail)) == wanted

    return shrink(Program.from_json(failure["program"]), still_wrong).to_json()


def category(detail: str) -> str:
    """Return what a detail says, without the numbers: to tell one fault from another."""
    head = detail.partition("[")[0].partition(", not")[0]
    # What values differ on which data changes with the program.
    if " data: " in detail:
        head = "data"
    return "".join(c for c in head if not c.isdigit())[:60].strip()
