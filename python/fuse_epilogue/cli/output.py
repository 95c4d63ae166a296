"""The output of a command: text or JSON, and an exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from typing import Any, TextIO

from .._files import try_to_write

#: Exit codes: all went well; something was refused, or could not be done; the command line or the
#: input is wrong, and nothing was done; Ctrl-C was pressed.
DONE, REFUSED, WRONG, INTERRUPTED = 0, 1, 2, 130


class InputError(ValueError):
    """A file that cannot be read as a module; the message names the file, the reason, a way out."""


@dataclass(frozen=True)
class Answer:
    """The result of a command.

    - `text`: for people.
    - `data`: the same for machines; printed as JSON with ``--json``.
    - `code`: :data:`DONE` or :data:`REFUSED`.
    """

    text: str
    data: dict[str, Any]
    code: int = DONE

    def show(self, as_json: bool) -> int:
        """Print it on standard output and return the exit code.

        A reader may stop at any time, as ``head`` does.

        - Raises OSError: standard output is closed, or its disk is full.
        """
        if sys.stdout is None:
            raise OSError("standard output is closed: the answer cannot be printed")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a name may be in any script
        with contextlib.suppress(BrokenPipeError):
            _print(json.dumps(self.data, indent=2) if as_json else self.text, sys.stdout)
        return self.code


def note(text: str) -> None:
    """Print something beside the answer, on standard error, if that is there."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            _print(text, sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        _abandon(stream)
        raise
    except OSError as error:
        _abandon(stream)
        raise OSError(f"{stream.name} cannot be written: {error.strerror}") from error


def _abandon(stream: TextIO) -> None:
    """Lose what is written from now on: Python flushes at its end, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def finish() -> None:
    """Send what is printed from now on to standard error: the answer is complete.

    A script of --run-python may have something to say at the end of the process.
    """
    if sys.stdout is None:
        return
    if sys.stderr is None:
        _abandon(sys.stdout)
    else:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def check_file(option: str, path: str | None) -> None:
    """Do nothing where a file can be written: asked before the work that makes its text.

    - `option`: the option of the command line, for the message.
    - `path`: None if the option is not given.
    - Raises InputError: the file cannot be written.

    >>> check_file("--out", "no/such/folder/plan.json")
    Traceback (most recent call last):
    fuse_epilogue.cli.output.InputError: --out cannot be written: there is no folder ...
    """
    if path is None:
        return
    try:
        try_to_write(path)
    except OSError as error:
        raise InputError(f"{option} cannot be written: {error}") from error
