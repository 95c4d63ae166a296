"""Judging the modules of one chunk of a long run."""

from __future__ import annotations

import os
import time
from typing import Any

from generated.state import Run

from .draw import random_module
from .oracle import Oracle, Unavailable
from .spec import Module
from .tally import Tally
from .verdict import ERROR, Verdict, judge


def module_of(seed: int, number: int) -> Module:
    """Return the n-th module of a seed."""
    return random_module(f"{seed}/{number}")


def run_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> dict[str, Any]:
    """Judge the modules of a range.

    - `fatal`: modules that ended this process, and not only the one that they are run in: they are
      not tried again.
    - Returns: of JSON's types: counts, and the counterexamples.
    """
    began = time.monotonic()
    tally = Tally()
    marker = run.folder / f"current-{os.getpid()}"
    oracle = oracle_if_any()
    for number in range(start, stop):
        module = module_of(run.seed, number)
        if number in fatal:
            tally.add(number, module, Verdict(ERROR, "the process died"))
            continue
        marker.write_text(str(number))
        tally.add(number, module, judge(module, f"{run.seed}/{number}", oracle))
    if oracle is not None:
        oracle.close()
    marker.unlink(missing_ok=True)
    tally.seconds = time.monotonic() - began
    return tally.to_json()


def oracle_if_any() -> Oracle | None:
    """Return ONNX Runtime; None where it is not installed."""
    try:
        return Oracle()
    except Unavailable:
        return None
