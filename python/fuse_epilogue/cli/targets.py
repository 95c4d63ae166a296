"""The target that --target names."""

from __future__ import annotations

import json
from typing import Any

from ..neuron.machine import MACHINES
from ..targets import as_target
from .output import InputError


def target(text: str) -> Any:
    """Return the target that a text names: TVM's, or the name of a Trainium machine.

    - Raises InputError: TVM does not know the target.

    >>> target("trn1")
    'trn1'
    >>> target("llvm").kind.name
    'llvm'
    """
    if text in MACHINES:
        return text
    try:
        return as_target(json.loads(text) if text.lstrip().startswith("{") else text)
    except json.JSONDecodeError as error:
        raise InputError(f"--target '{text}' is not valid JSON: {error}") from error
    except ValueError as error:
        raise InputError(f"--{error}") from error


def tracker(given: Any) -> tuple[str, int]:  # noqa: ANN401 - what the parser returns
    """Return the host and the port of --tracker, which --key goes with.

    - Raises InputError: one of the two is missing, or the tracker is not HOST:PORT.
    """
    if given.tracker is None or given.key is None:
        raise InputError("--tracker and --key go together: the one names the other's servers")
    name, _, port = given.tracker.rpartition(":")
    if not name or not port.isdigit():
        raise InputError(f"--tracker must be HOST:PORT, not '{given.tracker}'")
    return name, int(port)


def planned_target(text: str) -> Any:
    """Return the target that a text names, if the planner knows its machine.

    - Raises InputError: TVM does not know the target, or the planner has no such machine.

    >>> planned_target("c")
    Traceback (most recent call last):
    fuse_epilogue.cli.output.InputError: --target 'c': the planner does not know ...
    """
    from ..planner.backends import described

    named = target(text)
    try:
        described(named, None)
    except ValueError as error:
        raise InputError(f"--target '{text}': {error}") from error
    return named
