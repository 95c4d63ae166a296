"""What a long run is, and what it has finished so far."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

CHUNK = 500
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz"
sys.path.append(str(ROOT / "benchmarks"))
from provenance import commit, provenance  # noqa: E402

__all__ = ["Chunk", "Run", "State", "StateError", "commit", "fingerprint", "provenance"]

# The first program, and the first that does not belong to it.
Chunk = tuple[int, int]


@dataclass(frozen=True)
class Run:
    """What is to be run.

    Attributes
    ----------
    seed : int
        Program n of a run is the one of the seed and n.
    programs : int
    baseline : bool
        TVM's own primitive instead of this package's.
    folder : Path
        Where the state and the counterexamples go.
    chunk : int
        How many programs are done together.
    module : str
        The package of the tests that generates and judges them.
    again : bool
        Judge those chunks again in which something was wrong, and only those, whatever has changed
        in the code since the others were judged.
    """

    seed: int
    programs: int
    baseline: bool = False
    folder: Path = FOLDER
    chunk: int = CHUNK
    module: str = "generated"
    again: bool = False

    @property
    def chunks(self) -> list[Chunk]:
        """The ranges of programs that are done together."""
        starts = range(0, self.programs, self.chunk)
        return [(start, min(start + self.chunk, self.programs)) for start in starts]


class StateError(Exception):
    """The state of an earlier run cannot be used; the message says what to do."""


def fingerprint(module: str = "generated") -> str:
    """Return a hash of everything that decides about a verdict: the tests and the package."""
    digest = hashlib.sha256()
    package = ROOT / "python" / "fuse_epilogue"
    library = os.environ.get("FUSE_EPILOGUE_LIBRARY") or package / "lib" / "libfuse_epilogue.so"
    tests = Path(__file__).parents[1] / module
    files = [*sorted(tests.glob("*.py")), *sorted(package.rglob("*.py"))]
    for path in (*files, Path(library)):
        if path.is_file():
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class State:
    """The chunks that are finished, in a file to which one line is added for each.

    A line that was not written to its end is ignored: that chunk is run again.

    Attributes
    ----------
    kept : list
        Of each earlier commit: how many programs it judged that are not judged again.
    """

    def __init__(self, run: Run) -> None:
        kind = "baseline" if run.baseline else "ours"
        self.path = run.folder / f"state-{kind}-{run.seed}.jsonl"
        self._header = {
            "seed": run.seed,
            "chunk": run.chunk,
            "fingerprint": fingerprint(run.module),
        }
        self.finished: dict[Chunk, dict[str, Any]] = {}
        self.kept: list[dict[str, Any]] = []
        self.ignored = 0
        run.folder.mkdir(parents=True, exist_ok=True)
        if not self._read(run.again):
            self._start()

    def _start(self) -> None:
        """Replace the file: this code's header, and the chunks that are kept."""
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with new.open("w") as file:
            _write_line(file, {**self._header, "commit": commit(ROOT), "kept": self.kept})
            for (start, stop), result in self.finished.items():
                _write_line(file, {"start": start, "stop": stop, "result": result})
        new.replace(self.path)

    def _read(self, again: bool) -> bool:
        """Read what an earlier run has left; whether it goes on from there as it is."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(
                f"{self.path} cannot be read ({error}); remove it to start again"
            ) from error
        header = _parse(lines[0]) if lines else None
        if header is None or "fingerprint" not in header:
            raise StateError(f"{self.path} is no state of a run; remove it to start again")
        other = {name for name, value in self._header.items() if header.get(name) != value}
        if other and not (again and other == {"fingerprint"}):
            # Of another version of the code: its verdicts say nothing about this one.
            return False
        self._read_chunks(lines[1:])
        self.kept = header.get("kept", [])
        if again:
            self.finished = {
                c: found for c, found in self.finished.items() if not found["failures"]
            }
        if other:
            programs = sum(stop - start for start, stop in self.finished)
            programs -= sum(each["programs"] for each in self.kept)
            self.kept = [
                *self.kept,
                {"commit": header.get("commit", "unknown"), "programs": programs},
            ]
        return not again

    def _read_chunks(self, lines: list[str]) -> None:
        for line in lines:
            entry = _parse(line)
            if entry is None or not {"start", "stop", "result"} <= entry.keys():
                self.ignored += 1
                continue
            self.finished[entry["start"], entry["stop"]] = entry["result"]

    def add(self, start: int, stop: int, result: dict[str, Any]) -> None:
        """Keep a finished chunk."""
        self.finished[start, stop] = result
        with self.path.open("a") as file:
            _write_line(file, {"start": start, "stop": stop, "result": result})


def _write_line(file: TextIO, entry: dict[str, Any]) -> None:
    # The newline first: after a line that was cut off it begins a new one.
    file.write("\n" * bool(file.tell()) + json.dumps(entry))
    file.flush()
    os.fsync(file.fileno())


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
