"""Reads a module from a file: an IRModule as JSON, a TVMScript, or an ONNX model."""

from __future__ import annotations

import contextlib
import os
import runpy
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tvm
from tvm import ir, tirx

from ..tir.walk import handle
from .output import InputError

#: What stands for standard input, which is JSON.
STDIN = "-"


def read(path: str, run_python: bool = False) -> ir.IRModule:
    """Return the module that a file holds.

    - `path`: ``.json``: an IRModule or a PrimFunc, as ``tvm.ir.save_json`` writes them. ``.py``:
      TVMScript, or any Python that leaves an IRModule or PrimFuncs in its names. ``.onnx``: a
      model. ``-``: JSON from standard input. A pipe, or any file that is not a regular one: JSON.
    - `run_python`: whether a ``.py`` may be executed: there is no other way to read one.
    - Raises InputError: the file is missing, of another kind, or not what its name says.

    >>> read("model.txt")
    Traceback (most recent call last):
    fuse_epilogue.cli.output.InputError: 'model.txt': no file of that name
    """
    if path == STDIN:
        if sys.stdin is None:
            raise InputError("standard input is closed: name a file")
        return _from_json("standard input", _text("standard input", sys.stdin.read))
    file = Path(path)
    try:
        mode = file.stat().st_mode
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise InputError(f"'{path}': no file of that name") from error
        raise InputError(f"'{path}' cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"'{path}' is a folder: name a file in it")
    if not stat.S_ISREG(mode):
        return _json(file)
    reader = READERS.get(file.suffix)
    if reader is None:
        known = ", ".join(READERS)
        raise InputError(f"'{path}': its name must end in one of {known}")
    if file.suffix == ".py" and not run_python:
        raise InputError(
            f"'{path}' is Python, which is executed to be read: pass --run-python if you trust "
            "it, or save the module as JSON with tvm.ir.save_json"
        )
    with _printing_aside():
        return reader(file)


def functions(module: ir.IRModule, name: str | None = None) -> dict[str, tirx.PrimFunc]:
    """Return the PrimFuncs of a module by name, in its order; or the one of a name.

    - Raises InputError: there is none, or none of that name.
    """
    found = {
        var.name_hint: func
        for var, func in module.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    if not found:
        raise InputError("the module has no PrimFunc: lower its operators first, as relax does")
    if name is None:
        return found
    if name not in found:
        raise InputError(f"there is no PrimFunc '{name}', only {', '.join(found)}")
    return {name: found[name]}


@contextlib.contextmanager
def _printing_aside() -> Iterator[None]:
    """Send what is printed meanwhile to standard error: standard output is for the answer.

    A script may print anything, and so may the processes that it starts.
    """
    kept = None
    if sys.stdout is not None and sys.stderr is not None:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


@contextlib.contextmanager
def _beside(file: Path) -> Iterator[None]:
    """Let a script import what is beside it, as ``python script.py`` does."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the script may have removed it
            sys.path.remove(folder)


def _json(file: Path) -> ir.IRModule:
    return _from_json(f"'{file}'", _text(f"'{file}'", lambda: file.read_text(encoding="utf-8")))


def _text(what: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what} cannot be read: {error}") from error


def _from_json(what: str, text: str) -> ir.IRModule:
    try:
        loaded = ir.load_json(text)
    except Exception as error:  # TVM's reader raises whatever its parts raise
        raise InputError(
            f"{what} is not a module in JSON ({type(error).__name__}: {_first(error)}); write one "
            "with tvm.ir.save_json"
        ) from error
    return _module(what, [("main", loaded)])


def _python(file: Path) -> ir.IRModule:
    from tvm.script import ir as script_ir
    from tvm.script import relax as script_relax
    from tvm.script import tirx as script_tirx

    names = {"tvm": tvm, "I": script_ir, "T": script_tirx, "R": script_relax}
    try:
        with _beside(file):
            made = runpy.run_path(str(file), init_globals=names)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise InputError(
            f"'{file}' raises {type(error).__name__} when executed: {_first(error)}"
        ) from error
    return _module(f"'{file}'", [(k, v) for k, v in made.items() if k not in names])


def _onnx(file: Path) -> ir.IRModule:
    try:
        import onnx
    except ImportError as error:
        raise InputError(f"'{file}' needs the package onnx: pip install onnx") from error
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    try:
        return tvm.ir.transform.Sequential(passes)(from_onnx(onnx.load(str(file))))
    except Exception as error:  # a protobuf error, or whatever the frontend or a pass raises
        raise InputError(
            f"'{file}' cannot be read as ONNX ({type(error).__name__}: {_first(error)})"
        ) from error


def _module(what: str, named: list[tuple[str, Any]]) -> ir.IRModule:
    """Return the one module among objects, or one of all PrimFuncs among them."""
    modules = list(_distinct(named, ir.IRModule).values())
    if len(modules) == 1:
        return modules[0]
    if len(modules) > 1:
        raise InputError(f"{what} holds {len(modules)} modules: keep one of them")
    funcs = _distinct(named, tirx.PrimFunc)
    if not funcs:
        kinds = ", ".join(dict.fromkeys(type(each).__name__ for _, each in named)) or "nothing"
        raise InputError(f"{what} has neither an IRModule nor a PrimFunc, only {kinds}")
    return ir.IRModule(funcs)


def _distinct(named: list[tuple[str, Any]], kind: type) -> dict[str, Any]:
    """Return the objects of a kind by name, each once: a script may give one two names."""
    found: dict[int, tuple[str, Any]] = {}
    for name, each in named:
        if isinstance(each, kind):
            found.setdefault(handle(each), (name, each))
    return dict(found.values())


def _first(error: BaseException) -> str:
    """Return the last line of a message, where TVM says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


#: What reads a file, by the end of its name.
READERS: MappingProxyType[str, Callable[[Path], ir.IRModule]] = MappingProxyType(
    {".json": _json, ".py": _python, ".onnx": _onnx}
)
