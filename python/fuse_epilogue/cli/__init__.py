"""The command line, ``fuse-epilogue`` or ``python -m fuse_epilogue``: one module for each command.

:mod:`.commands` has their options and their help. Every command returns an
:class:`.output.Answer`, which is printed as text or as JSON. All but ``calibrate`` take a file that
:mod:`.inputs` reads. Standard output is for the answer alone; the exit codes are those of
:mod:`.output`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from .._extend import extend_tvm
from .._interrupts import as_keyboard_interrupt
from . import output
from .commands import COMMANDS

__all__ = ["main", "parser", "program_name"]

_DESCRIPTION = """
Fuse reductions with what follows them, plan and emit kernels, compile whole models: for modules in
files.
INPUT is an IRModule as JSON (tvm.ir.save_json), a TVMScript in .py (which is Python and is
executed: only with --run-python), an ONNX model, or - for JSON on standard input.
"""
_EXIT_CODES = """
exit codes:
  0    done
  1    something was refused, or could not be done: the output says what
  2    the command line or INPUT is wrong: nothing was done
  130  interrupted
"""


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def program_name() -> str:
    """Return how this command line was started: as the script, or as a module of Python."""
    name = Path(sys.argv[0]).name
    return name if name == "fuse-epilogue" else "python -m fuse_epilogue"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog=program_name(),
        description=_DESCRIPTION,
        epilog=f"{_EXIT_CODES}\nCOMMAND --help says more",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, row in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=row.help,
            description=row.description,
            epilog=f"examples:{row.examples}{_EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if row.reads_input:
            command.add_argument(
                "input", metavar="INPUT", help="a .json, .py or .onnx file, or - or a pipe for JSON"
            )
            command.add_argument(
                "--run-python", action="store_true", help="execute INPUT if it is Python: trust it"
            )
        command.add_argument(
            "--json",
            action="store_true",
            help="print one JSON document instead of text; all else goes to standard error",
        )
        row.add(command)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    arguments : Sequence[str], optional
        Those of the command line if None.

    Raises
    ------
    SystemExit
        With 2, by the parser: the command or option is unknown, or its value is invalid.

    Example
    -------
    >>> main(["plan", "nothing.json"])
    2
    """
    given = parser().parse_args(arguments)
    try:
        with as_keyboard_interrupt():
            # After the parser: TVM is imported here, which help has no need of.
            extend_tvm()
            module = importlib.import_module(f".{COMMANDS[given.command].module}", __name__)
            answer: output.Answer = module.run(given)
            return answer.show(given.json)
    except (output.InputError, OSError) as error:
        output.note(f"error: {error}")
        return output.WRONG if isinstance(error, output.InputError) else output.REFUSED
    except KeyboardInterrupt:
        output.note("interrupted")
        return output.INTERRUPTED
