"""Programs are compiled in groups: a call of the compiler costs more than one function does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from oracles import Builds
from programs import ACCEPT, EITHER, REFUSE, Case
from tiers import enough

from .subject import Subject

# Programs in a group. All of a group run in one process: this is the grain of sharing them out.
SIZE = 25
WIDE_INTEGERS = {"int32", "int64", "uint32", "uint64"}

_PLACE: dict[str, tuple[int, str]] = {
    case.name: (number, f"{kind}-{number // SIZE}")
    for kind, cases in (("accept", ACCEPT), ("either", EITHER), ("refuse", REFUSE))
    for number, case in enumerate(cases)
}


def each(cases: Sequence[Case], step: int = 1) -> Any:
    """Run a test once for every case, those of a group in one process, after each other.

    The quick tier keeps one case in `step`, and each first one that is fused in its way.
    """
    params = []
    for number, (case, first) in enumerate(zip(cases, enough(map(_way, cases)), strict=True)):
        marks = [pytest.mark.xdist_group(_PLACE[case.name][1])]
        if number % step and not first:
            marks.append(pytest.mark.full)
        params.append(pytest.param(case, id=case.name, marks=marks))
    return pytest.mark.parametrize("case", params)


def _way(case: Case) -> dict[str, Any]:
    """How a case is fused, as far as it says so."""
    names = ("numerics", "distribute", "distributed", "init", "kept", "local")
    return {name: getattr(case, name) for name in names} | {"tails": bool(case.tails)}


class Groups:
    """What the steps of a program share, made for one group at a time.

    - `selected`: the programs that are asked for.
    - `run`: those of them that are run: no other is compiled.
    """

    def __init__(self, selected: Iterable[Case], run: Iterable[Case]) -> None:
        self._selected = {case.name: case for case in selected}
        self._run = {case.name for case in run}
        self._subjects: dict[str, Subject] = {}
        self._built = False

    def subject(self, case: Case, *, built: bool = False) -> Subject:
        """The subject of `case`, with its functions compiled if that is asked for."""
        if case.name not in self._subjects:
            self._subjects = {
                name: Subject(one, _PLACE[name][0])
                for name, one in self._selected.items()
                if _PLACE[name][1] == _PLACE[case.name][1]
            }
            self._built = False
        if built and not self._built:
            compile_all([one for name, one in self._subjects.items() if name in self._run])
            self._built = True
        return self._subjects[case.name]


def compile_all(subjects: list[Subject]) -> None:
    """Compile all that there is to run of `subjects`.

    ``<name>`` is the program unfused, ``<name>_fused`` fused, ``<name>_exact`` fused with
    ``numerics="exact"``, ``<name>_decomposed`` fused and decomposed. A program of which one of
    these cannot be made has no such function; the step that needs it says so.
    """
    unoptimised: dict[str, Any] = {}
    optimised: dict[str, Any] = {}
    same: dict[str, str] = {}
    names: dict[object, str] = {}
    for subject in subjects:
        case, name = subject.case, subject.case.name
        if case.reference is None:
            continue
        # What is not fused is a reference: what an optimiser makes of it does not matter.
        same[name] = names.setdefault((case.func, case.schedule), name)
        if same[name] == name:
            unoptimised[name] = subject.before
        if case.refused:
            continue
        # It matters where it assumes something: that wide integers do not overflow.
        wide = case.schedule is None and subject.accumulator in WIDE_INTEGERS
        # Whatever these raise: the steps of this one program report it.
        with contextlib.suppress(Exception):
            (optimised if wide else unoptimised)[f"{name}_fused"] = subject.fused.after
        if case.either:
            continue
        with contextlib.suppress(Exception):
            if subject.to_be_exact:
                unoptimised[f"{name}_exact"] = subject.exact.after
        with contextlib.suppress(Exception):
            if subject.decomposed_once is not None:
                optimised[f"{name}_decomposed"] = subject.decomposed_once
    builds = Builds(unoptimised, opt_level=0)
    builds.add(optimised)
    builds.alias(same)
    for subject in subjects:
        subject.builds = builds
