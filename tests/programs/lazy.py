"""TIR that is parsed when it is first asked for: importing the corpus parses none of it.

Parsing takes longer than anything else that is done with most programs, and most processes that
import the corpus need the names of all programs and the TIR of a few.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tvm.script.parser._core import parse, utils
from tvm.tirx import PrimFunc


class Program:
    """A function in TVMScript, and what the names in it mean.

    - `function`: the Python function that holds the text.
    - `enclosing`: local variables of the function in which it is defined. Those that only
      annotations use are not in its closure.
    """

    def __init__(self, function: FunctionType, enclosing: dict[str, Any]) -> None:
        self.name = function.__name__
        self._function = function
        self._enclosing = enclosing
        self._parsed: PrimFunc | None = None

    @property
    def func(self) -> PrimFunc:
        """The parsed function: the same object every time."""
        if self._parsed is None:
            captured = utils.inspect_function_capture(self._function)
            self._parsed = parse(self._function, {**captured, **self._enclosing})
        return self._parsed


def prim_func(*, s_tir: bool) -> Callable[[FunctionType], Program]:
    """Mark a function as TVMScript, as ``T.prim_func`` does, without parsing it yet.

    Variables of the function in which it is defined have the values that they have at the
    definition. The parser reads `s_tir` in the text of the decorator.
    """
    frame = sys._getframe(1)
    enclosing = dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}

    def mark(function: FunctionType) -> Program:
        return Program(function, enclosing)

    mark.dispatch_token = "tirx"  # type: ignore[attr-defined]
    return mark


prim_func.dispatch_token = "tirx"  # type: ignore[attr-defined]


def name_of(func: PrimFunc | Program) -> str:
    """The name of a function, without parsing it."""
    return func.name if isinstance(func, Program) else str(func.attrs["global_symbol"])
