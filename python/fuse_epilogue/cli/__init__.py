"""The command line, ``fuse-epilogue`` or ``python -m fuse_epilogue``: one module for each command.

:mod:`.commands` has their options and their help. Every command returns an
:class:`.output.Answer`, which is printed as text or as JSON. All but ``calibrate`` take a file that
:mod:`.inputs` reads. Standard output is for the answer alone; the exit codes are those of
:mod:`.output`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from .._extend import extend_tvm
from .._interrupts import as_keyboard_interrupt
from . import output
from .commands import COMMANDS

__all__ = ["main", "parser", "program_name"]

#: Name of the console script.
SCRIPT = "fuse-epilogue"
_DESCRIPTION = """
Fuse reductions with the elementwise work that follows them, plan and emit kernels, compile whole
models.

INPUT is an IRModule as JSON (tvm.ir.save_json), TVMScript (.py; it is executed, which --run-python
must allow), an ONNX model, or - for JSON on standard input.
"""
_EXIT_CODES = """
exit codes:
  0    done
  1    something was refused or failed: the output says what
  2    the command line or INPUT is wrong; nothing was done
  130  interrupted
"""


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def program_name() -> str:
    """Return how this command line was started: as the script, or as a module of Python."""
    name = Path(sys.argv[0]).name
    return name if name == SCRIPT else "python -m fuse_epilogue"


def _filled(text: str) -> str:
    """Return paragraphs in lines of a terminal's width."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(textwrap.fill(" ".join(each.split()), 79) for each in paragraphs)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog=program_name(),
        description=_filled(_DESCRIPTION),
        epilog=f"{_EXIT_CODES}\nCOMMAND --help describes a command",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, row in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=row.help,
            description=_filled(row.description),
            epilog=f"examples:{row.examples.replace(SCRIPT, program_name())}{_EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if row.reads_input:
            command.add_argument(
                "input", metavar="INPUT", help="a .json, .py or .onnx file; - or a pipe for JSON"
            )
            command.add_argument(
                "--run-python",
                action="store_true",
                help="allow a .py INPUT, which is executed: use only files that you trust",
            )
        command.add_argument(
            "--json",
            action="store_true",
            help="print one JSON document instead of text; messages go to standard error",
        )
        row.add(command)
        command.set_defaults(parser=command)
    return made


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return parsed arguments; an unknown option ends with the usage of its command."""
    given, unknown = parser().parse_known_args(arguments)
    if unknown:
        known = [option for option in given.parser._option_string_actions if option != "-h"]
        close = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        given.parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    - `arguments`: those of the command line if None.
    - Raises SystemExit: with 2, by the parser: the command or option is unknown, or its value is
      invalid.

    >>> main(["plan", "nothing.json"])
    2
    """
    given = _parsed(arguments)
    try:
        with as_keyboard_interrupt():
            # After the parser: TVM is imported here, which help has no need of.
            extend_tvm()
            module = importlib.import_module(f".{given.command}", __name__)
            answer: output.Answer = module.run(given)
            return answer.show(given.json)
    except (output.InputError, OSError) as error:
        output.note(f"error: {error}")
        return output.WRONG if isinstance(error, output.InputError) else output.REFUSED
    except KeyboardInterrupt:
        output.note("interrupted")
        return output.INTERRUPTED
