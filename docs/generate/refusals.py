"""The page of refusal codes, from the tables of the package."""

from __future__ import annotations

import re
from collections.abc import Mapping

import fuse_epilogue
from fuse_epilogue.neuron import REFUSALS as EMITTER
from fuse_epilogue.transform.find import LEFT_ALONE
from fuse_epilogue.transform.report import FAILED, NOT_CHOSEN

from .rst import code, page, prose, table, title

_INTRODUCTION = """
A refusal is a ``tvm.s_tir.ScheduleError``. It begins with ``[code] what failed, what to do
instead``, names the code's entry on this page, shows the TIR with the offending part marked, and
ends with the reason again. Module, trace and random variables are as they
were. :func:`fuse_epilogue.refusal_code` gives the code of an error, and
:func:`fuse_epilogue.analyze` the same without an error. The message names the block and the
expression; what follows is the general explanation of each code,
:data:`fuse_epilogue.REFUSALS`. Codes are stable: programs may depend on them.
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


def _entry(name: str, meaning: str) -> str:
    cause, cure = cause_and_cure(meaning)
    told = f"{prose(cause)}\n    |br| **Instead:** {prose(cure)}" if cause else prose(cure)
    return f".. _refusal-{name}:\n\n{code(name)}\n    {told}\n"
