"""What is kept of a run in build/mutants: lines that tests execute, and what became of mutants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import FOLDER, PACKAGES, SOURCES


def digest() -> str:
    """A name for the sources that are mutated: with others, the recorded lines are worthless."""
    found = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((SOURCES / "fuse_epilogue" / package).rglob("*.py")):
            found.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


@dataclass
class Recorded:
    """The tests that were run once without any fault.

    - `seconds`: processor time of each test that passed.
    - `lines`: by file, relative to the folder of sources: the tests that execute a line.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def covering(self, file: str, lines: Iterable[int]) -> list[str]:
        """The tests that execute one of some lines of a file."""
        of_file = self.lines.get(file, {})
        return list(dict.fromkeys(test for line in lines for test in of_file.get(line, ())))

    def executing(self, file: str) -> list[str]:
        """The tests that execute any line of a file."""
        return self.covering(file, self.lines.get(file, {}))

    def in_order(self, tests: Iterable[str]) -> list[str]:
        """Tests that are likely to notice early come first: the fastest of each file in turn."""
        by_file: dict[str, list[str]] = {}
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            by_file.setdefault(test.partition("::")[0], []).append(test)
        ranked = [(rank, test) for group in by_file.values() for rank, test in enumerate(group)]
        return [test for _, test in sorted(ranked, key=lambda r: (r[0], self.seconds[r[1]]))]


class Store:
    """The folder with the state of a run."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    def _recordings(self) -> Path:
        return self.folder / f"recorded-{digest()}"

    def recorded_tests(self) -> set[str]:
        """The tests that were run to record their lines, also those that failed."""
        found: set[str] = set()
        for path in self._files():
            data = json.loads(path.read_text())
            found.update(data["seconds"], data["failed"])
        return found

    def _files(self) -> list[Path]:
        return sorted(self._recordings().glob("*.json"))

    def record(
        self,
        seconds: dict[str, float],
        lines: dict[str, dict[int, list[str]]],
        failed: Collection[str] = (),
    ) -> None:
        """Keep what some tests execute; those that passed are written as numbers."""
        numbers = {test: number for number, test in enumerate(seconds)}
        short = {
            file: {
                line: [numbers[test] for test in tests if test in numbers]
                for line, tests in of_file.items()
            }
            for file, of_file in lines.items()
        }
        name = hashlib.sha256("\n".join([*seconds, *failed]).encode()).hexdigest()[:12]
        write(
            self._recordings() / f"{name}.json",
            {"seconds": seconds, "failed": sorted(failed), "lines": short},
        )

    def recorded(self) -> Recorded:
        """All that is recorded."""
        result = Recorded()
        for path in self._files():
            data = json.loads(path.read_text())
            tests = list(data["seconds"])
            result.seconds.update(data["seconds"])
            for file, of_file in data["lines"].items():
                here = result.lines.setdefault(file, {})
                for line, numbers in of_file.items():
                    here.setdefault(int(line), []).extend(tests[number] for number in numbers)
        return result

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """What became of mutants, by their names."""
        path = self.folder / "outcomes.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def add(self, name: str, outcome: dict[str, Any]) -> None:
        """Keep what became of a mutant."""
        write(self.folder / "outcomes.json", {**self.outcomes(), name: outcome})


def write(path: Path, data: Any) -> None:
    """Write JSON so that an interruption leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data))
    part.replace(path)
