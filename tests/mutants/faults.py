"""The faults that are put into the package: what each is, and which tests can notice it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import tvm_ffi

from . import ROOT, SOURCES
from .rows import ROWS, WrongRow
from .sample import Mutation
from .store import Recorded
from .swap import swap


class Fault(Protocol):
    """Something wrong with the package."""

    @property
    def name(self) -> str:
        """Name among all faults."""

    @property
    def kind(self) -> str:
        """Kind under which it is counted."""

    def tests(self, recorded: Recorded, cpp: Mapping[str, tuple[str, ...]]) -> list[str]:
        """Return the tests to run, in order.

        `cpp` has those that exercise the library, with the refusal codes of the program that each
        is about.
        """

    def install(self) -> None:
        """Put it into a process that has the package loaded, or raise `NotAFunctionError`."""

    def changes(self) -> dict[str, str]:
        """Return the changed texts of files, by path below the root, for a fresh process."""

    def as_json(self) -> dict[str, Any]:
        """Return what is written down of it."""


@dataclass(frozen=True)
class Mutated:
    """A mutant of a Python file."""

    mutation: Mutation
    kind = "mutants of Python"

    @property
    def name(self) -> str:
        return self.mutation.name

    def tests(self, recorded: Recorded, cpp: Mapping[str, tuple[str, ...]]) -> list[str]:
        file, first, last = self.mutation.file, self.mutation.line, self.mutation.last
        covering = recorded.covering(file, range(first, last + 1))
        # Lines of a module's own code run while it is imported: for no test in particular.
        return recorded.in_order(covering or recorded.executing(file))

    def install(self) -> None:
        path = SOURCES / self.mutation.file
        swap(str(path), path.read_text(encoding="utf-8"), self.mutation.source())

    def changes(self) -> dict[str, str]:
        path = (SOURCES / self.mutation.file).relative_to(ROOT)
        return {str(path): self.mutation.source()}

    def as_json(self) -> dict[str, Any]:
        return {"change": self.mutation.difference()}


@dataclass(frozen=True)
class SwitchedOff:
    """A check or a decision of the library that is left out."""

    code: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.code}"

    def tests(self, recorded: Recorded, cpp: Mapping[str, tuple[str, ...]]) -> list[str]:
        spelled = (self.code, self.code.replace("-", "_"))
        named = [
            test
            for test, codes in cpp.items()
            if self.code in codes or any(each in test for each in spelled)
        ]
        return recorded.in_order(named) + recorded.in_order(cpp.keys() - set(named))

    def install(self) -> None:
        tvm_ffi.get_global_func("fuse_epilogue.testing.SwitchOffChecks")([self.code])

    def changes(self) -> dict[str, str]:
        return {}

    def as_json(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Wrong:
    """A wrong row of a table."""

    row: WrongRow
    kind = "rows of tables"

    @property
    def name(self) -> str:
        return f"{self.row.table}: {self.row.before}"

    def tests(self, recorded: Recorded, cpp: Mapping[str, tuple[str, ...]]) -> list[str]:
        if self.row.file.startswith("cpp/"):
            return recorded.in_order(cpp)
        return recorded.in_order(
            test for test in recorded.seconds if test.startswith(self.row.tests)
        )

    def install(self) -> None:
        from .swap import NotAFunctionError

        raise NotAFunctionError(self.row.file)

    def changes(self) -> dict[str, str]:
        before = (ROOT / self.row.file).read_text(encoding="utf-8")
        return {self.row.file: before.replace(self.row.before, self.row.after)}

    def as_json(self) -> dict[str, Any]:
        return {"change": [self.row.before, self.row.after]}


def switched_off() -> list[SwitchedOff]:
    """Every check of a fusion without which programs go wrong, and every decision."""
    # Not at the top: it loads the library, which a copy of the sources may have to replace.
    from test_mutations import CHECKS

    decisions = tvm_ffi.get_global_func("fuse_epilogue.testing.Decisions")()
    checks = [SwitchedOff(code, "checks switched off") for code in CHECKS]
    return [*checks, *(SwitchedOff(str(each), "decisions reversed") for each in decisions)]


def wrong_rows() -> list[Wrong]:
    """One wrong row of each table, and some more."""
    return [Wrong(row) for row in ROWS]


def uses_the_switch(path: Path) -> bool:
    """Whether a file of tests turns checks off and on: it would turn on what is to be off."""
    text = path.read_text(encoding="utf-8")
    return "SwitchOffChecks" in text or "from mutation import" in text
