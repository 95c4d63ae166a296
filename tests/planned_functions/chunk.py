"""Judging the functions of one chunk of a long run."""

from __future__ import annotations

import os
import time
from typing import Any

from generated.state import Run

from .draw import draw
from .tally import Tally
from .verdict import DIED, Verdict, judge


def run_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> dict[str, Any]:
    """Judge the functions of a range.

    - `fatal`: functions that ended the process before: they are not tried again.
    - Returns: of JSON's types: counts, and the counterexamples.
    """
    tally, began = Tally(), time.monotonic()
    marker = run.folder / f"current-{os.getpid()}"
    for number in range(start, stop):
        marker.write_text(str(number))
        function = draw(run.seed, number)
        died = Verdict(DIED, "the process died: of planning or of compiling")
        tally.add(number, function, died if number in fatal else judge(function, number))
    marker.unlink(missing_ok=True)
    tally.seconds = time.monotonic() - began
    return tally.to_json()
