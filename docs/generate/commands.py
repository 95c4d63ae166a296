"""The page of the command line, from its own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from fuse_epilogue import cli

from .rst import block, page, title

_INTRODUCTION = """
The commands work on files: an IRModule as JSON (``tvm.ir.save_json``), an ONNX model, or
TVMScript, which is Python and is executed only with ``--run-python``.
"""

#: Characters of a line of help, whatever the terminal has.
_WIDTH = 88


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH, max_help_position=28)


def pages() -> Mapping[str, str]:
    """Return the page with the help of every command."""
    parser = cli.parser()
    parts = [".. _command-line:\n", title("Command line"), _INTRODUCTION, _help(parser)]
    for name, command in commands(parser):
        parts += [title(name, 1), _help(command)]
    return {"commands": page(*parts)}


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by name."""
    for action in parser._actions:  # there is no public way to them
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _help(parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = _Formatter
    return block("text", parser.format_help())
