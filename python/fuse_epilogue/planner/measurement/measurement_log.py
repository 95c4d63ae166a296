"""Measurements that are in a file as soon as they are made: a calibration that is stopped goes on.

It measures the same kernels in the same order again, and those that are in the file at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from tvm.target import Target

from ..problems.problem import Problem
from ..problems.space import Point

#: What measures a point: a problem, a point of it, a target, and seconds to measure for at least.
Measure = Callable[[Problem, Point, Target, float], float]

#: Suffix of the file, after the name of the profile.
SUFFIX = ".measured"


class NotMeasured(RuntimeError):
    """A point could not be measured; others may be."""


class Kept:
    """A measurement log written as it goes, so that an interrupted calibration resumes.

    Each line is one measurement, as JSON.

    - `profile`: the file beside which it is, see :data:`SUFFIX`.
    - `measure`: measures a point that is not in the log.
    - `found` (int): how many measurements there were.

    >>> kept = Kept(Path("xeon.json"), remote.measure)          # doctest: +SKIP
    >>> calibrate(machine, target, measure=kept.measure)        # doctest: +SKIP
    >>> kept.remove()                                           # doctest: +SKIP
    """

    def __init__(self, profile: Path, measure: Measure) -> None:
        self.file = profile.with_name(profile.name + SUFFIX)
        self._measure = measure
        self._seconds: dict[str, float] = {}
        if self.file.exists():
            for line in self.file.read_bytes().splitlines():
                try:
                    key, seconds = json.loads(line)
                    self._seconds[str(key)] = float(seconds)
                except (TypeError, ValueError):
                    continue  # half a line, of a process that was killed, or none of ours
        self.found = len(self._seconds)

    def measure(self, problem: Problem, point: Point, target: Target, least: float = 0.0) -> float:
        """Return how long a point takes, in seconds, measured now or before."""
        what = f"{target} {problem.func.script()} {sorted(point.items())} {least}"
        key = hashlib.sha256(what.encode()).hexdigest()
        if key not in self._seconds:
            self._seconds[key] = self._measure(problem, point, target, least)
            with self.file.open("ab") as file:
                # Whatever half a line is there, this one is whole.
                file.write(b"\n" * self._torn() + json.dumps([key, self._seconds[key]]).encode())
                file.write(b"\n")
        return self._seconds[key]

    def remove(self) -> None:
        """Remove the file: the profile is finished."""
        self.file.unlink(missing_ok=True)

    def _torn(self) -> bool:
        data = self.file.read_bytes()
        return bool(data) and not data.endswith(b"\n")
