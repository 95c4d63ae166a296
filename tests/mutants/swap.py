"""Puts the changed functions of a module into this process, where the module is loaded already."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

#: What a code object says beside its constants and the numbers of its lines.
_OWN = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable")


class NotAFunctionError(Exception):
    """More is changed than the bodies of functions that exist in this process."""


def swap(filename: str, before: str, after: str) -> int:
    """Give the functions of a file the code of a changed text of it.

    - `filename`: path that the functions' code names.
    - `before`, `after`: text of the file as it was loaded, and the changed text.
    - Returns: number of functions whose code was replaced.
    - Raises NotAFunctionError: code outside of functions is changed (a constant, a default, a
      decorator), or no function of this process has the changed code. Nothing is replaced.
    """
    old, new = (compile(text, filename, "exec", dont_inherit=True) for text in (before, after))
    changed = {_key(a): b for a, b in _changed(old, new)}
    functions = [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType
        and each.__code__.co_filename == filename
        and _key(each.__code__) in changed
    ]
    if not functions:
        raise NotAFunctionError(filename)
    for each in functions:
        each.__code__ = changed[_key(each.__code__)]
    return len(functions)


def _key(code: CodeType) -> tuple[str, int, tuple[str, ...]]:
    """What distinguishes the functions of a file."""
    return code.co_name, code.co_firstlineno, code.co_freevars


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the pairs of functions' code that differ.

    A function that makes a changed function with every call is changed as well; a module or a class
    that made one once is not.
    """
    a, b = _nested(old), _nested(new)
    own = len(a) != len(b) or _constants(old) != _constants(new)
    own = own or any(getattr(old, name, None) != getattr(new, name, None) for name in _OWN)
    below = [] if own else [pair for pair in zip(a, b, strict=True)]
    inner = [found for pair in below for found in _changed(*pair)]
    if (own or inner) and old.co_flags & inspect.CO_OPTIMIZED:
        if old.co_freevars != new.co_freevars:
            raise NotAFunctionError(old.co_name)
        yield old, new
    elif own:
        raise NotAFunctionError(old.co_name)
    yield from inner


def _nested(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _constants(code: CodeType) -> list[str]:
    return [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
