"""The page of refusal codes, from the tables of the package."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import runpy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import fuse_epilogue
from fuse_epilogue.neuron import REFUSALS as EMITTER
from fuse_epilogue.transform.fuse_one import LEFT_ALONE
from fuse_epilogue.transform.report import FAILED, NOT_CHOSEN

from . import pairs
from .rst import block, code, page, prose, table, title

TUTORIAL = Path(__file__).resolve().parents[2] / "tutorials" / "02_fused_and_refused.py"

_INTRODUCTION = """
A refusal is a ``tvm.s_tir.ScheduleError``. It begins with ``[code] what failed, what to do
instead``, names the code's entry on this page, shows the TIR with the offending part marked, and
ends with the reason again. Module, trace and random variables are as they
were. :func:`fuse_epilogue.refusal_code` gives the code of an error, and
:func:`fuse_epilogue.analyze` the same without an error. The message names the block and the
expression; what follows is the general explanation of each code,
:data:`fuse_epilogue.REFUSALS`. Codes are stable: programs may depend on them. In the lines that
follow, the program with the lines ``-`` is refused, and with the lines ``+`` it is fused. The whole
programs are in tutorial 02; those of cascades are made from this one:
"""
_PASS = """
The report of :class:`fuse_epilogue.transform.FuseReductionEpilogue` has the codes above, for each
reduction, and one of its own. Functions that it does not look into are *left alone*, with a reason.
"""
_EMITTER = """
:func:`fuse_epilogue.neuron.emit` refuses with an :class:`fuse_epilogue.neuron.EmitError`, whose
message names the block, loop or buffer, what is in the way, and the way out.
"""


def cause_and_cure(meaning: str) -> tuple[str, str]:
    """Cut the explanation of a code into what is wrong, and what to do instead.

    Example
    -------
    >>> cause_and_cure("It has no init; fuse before.")
    ('It has no init.', 'Fuse before.')
    """
    cut = list(re.finditer(r"; |\. |: ", meaning))
    if not cut:
        return "", meaning
    cause, cure = meaning[: cut[-1].start()], meaning[cut[-1].end() :]
    return f"{cause.rstrip('.')}.", cure[:1].upper() + cure[1:]


def pages() -> Mapping[str, str]:
    """Return the page of refusal codes."""
    entries = [_entry(name, meaning) for name, meaning in fuse_epilogue.REFUSALS.items()]
    alone = [(code(name), prose(why)) for name, why in LEFT_ALONE.items()]
    alone.append((code(FAILED), "an error of the package: the function stays as it is"))
    return {
        "refusals": page(
            ".. _refusal-codes:\n",
            title("Refusal codes"),
            _INTRODUCTION,
            block("python", pairs.SOFTMAX),
            title("Of the primitive", 1),
            *entries,
            title("Of the pass", 1),
            _PASS,
            table(
                ("code", "meaning"),
                [(code(NOT_CHOSEN), "the policy is against it: ``decision`` says why")],
            ),
            table(("left alone", "because"), alone),
            title("Codes of the emitter for Trainium", 1),
            _EMITTER,
            table(
                ("code", "the way out"),
                [(code(name), prose(way)) for name, way in EMITTER.items()],
                (1, 3),
            ),
        )
    }


@functools.cache
def examples() -> Mapping[str, str]:
    """Return for each code its smallest example, as a difference of two programs.

    Tutorial 02 is run, and prints most of them; the others are `pairs`. ``accumulator-type`` has
    none: no call is refused with it any more.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(TUTORIAL))
    others = {name: pairs.difference(*pair) for name, pair in pairs.pairs().items()}
    return {**differences(printed.getvalue()), **others}


def differences(printed: str) -> dict[str, str]:
    r"""Return the first difference in front of each code's message.

    Example
    -------
    >>> print(differences("    -fuses\n    +does not\n[no-init] it has none")["no-init"])
    -does not
    +fuses
    """
    found: dict[str, str] = {}
    lines: list[str] = []
    for line in printed.splitlines():
        message = re.match(r"\[([a-z-]+)\] ", line)
        if re.match(r"    [-+]", line):
            lines.append(line[4:])
            continue
        if message and lines:
            found.setdefault(message[1], "\n".join(_reversed(pairs.dedented(lines))))
        lines = []
    return found


def _reversed(lines: Iterable[str]) -> Iterator[str]:
    """Yield a difference with what is removed and what is added exchanged, hunk by hunk."""
    for _, hunk in itertools.groupby(_numbered(lines), key=lambda each: each[0]):
        both = [line for _, line in hunk]
        yield from (f"-{line[1:]}" for line in both if line.startswith("+"))
        yield from (f"+{line[1:]}" for line in both if line.startswith("-"))


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each line with its hunk: what is removed, followed by what is added."""
    hunk, last = 0, ""
    for line in lines:
        hunk += last == "+" and line.startswith("-")
        last = line[0]
        yield hunk, line


def _entry(name: str, meaning: str) -> str:
    cause, cure = cause_and_cure(meaning)
    advice = f"{prose(cause)}\n    |br| **Instead:** {prose(cure)}" if cause else prose(cure)
    example = examples().get(name)
    lines = block("diff", example) if example else ""
    shown = "".join(f"    {line}".rstrip() + "\n" for line in lines.splitlines())
    return f".. _refusal-{name}:\n\n{code(name)}\n    {advice}\n\n{shown}"
