"""Options that several commands have: --target, --numerics."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tvm.target import Target

from ..neuron.machine import MACHINES
from ..schedule import NUMERICS
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
        raise InputError(f"--target '{text}' is no target that TVM knows: {last}") from error


def add_numerics(parser: argparse.ArgumentParser) -> None:
    """Add --numerics, as :func:`fuse_epilogue.fuse_reduction_epilogue` takes it."""
    known = list(NUMERICS)
    parser.add_argument(
        "--numerics",
        choices=known,
        default=known[0],
        help="whether floating sums may be reassociated (default: %(default)s)",
    )
