"""Options that several commands have: --target, --numerics, and numbers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tvm.target import Target

from ..neuron.machine import MACHINES
from ..schedule import NUMERICS
from ..transform.find import DEFAULT_NUMERICS
from .inputs import InputError

#: What --target takes, for the help of the commands.
TARGETS = (
    "host: this machine; trn1, trn2: AWS Trainium; or a target of TVM: a kind such as llvm, or "
    """JSON such as '{"kind": "cuda", "arch": "sm_90"}'"""
)


def target(text: str) -> Any:
    """Return the target that a text names: TVM's, or the name of a Trainium machine.

    Raises
    ------
    InputError
        TVM knows no such target.

    Example
    -------
    >>> target("trn1")
    'trn1'
    >>> target("llvm").kind.name
    'llvm'
    """
    if text in MACHINES:
        return text
    if text == "host":
        from ..schedules import host

        return host()
    try:
        return Target(json.loads(text) if text.lstrip().startswith("{") else text)
    except Exception as error:  # TVM's errors are of several types
        last = (str(error).strip().splitlines() or ["no message"])[-1]
        raise InputError(f"--target '{text}' is not a target that TVM knows: {last}") from error


def planned_target(text: str) -> Any:
    """Return the target that a text names, if the planner knows its machine.

    Raises
    ------
    InputError
        TVM knows no such target, or the planner knows no such machine.

    Example
    -------
    >>> planned_target("c")
    Traceback (most recent call last):
    fuse_epilogue.cli.inputs.InputError: --target 'c': the planner does not know ...
    """
    from ..planner.kinds import described

    named = target(text)
    try:
        described(named, None)
    except ValueError as error:
        raise InputError(f"--target '{text}': {error}") from error
    return named


def natural(text: str) -> int:
    """Return a number from 0, for the parser: it says so where that is none.

    Example
    -------
    >>> natural("24")
    24
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a whole number from 0, not '{text}'")
    return int(text)


def add_numerics(parser: argparse.ArgumentParser) -> None:
    """Add --numerics, as :class:`fuse_epilogue.transform.FuseReductionEpilogue` takes it."""
    parser.add_argument(
        "--numerics",
        choices=list(NUMERICS),
        default=DEFAULT_NUMERICS,
        help="exact: every float stays bit for bit; reassociate: floating sums may also start "
        "from what is added to them, which rounds in another order (default: %(default)s)",
    )
