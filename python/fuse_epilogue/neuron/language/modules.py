"""Kernel files: their names, each made when it is first needed, and what they import."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KernelError, Refused
from ..limits import bounded
from . import expressions as ex
from .builtins import MODULES
from .functions import AUTO, Default
from .grammar import dotted
from .names import NAMESPACES
from .objects import MISSING, Builtin, Class, Frame, KernelFile, Namespace, Unknown
from .scope import Scope
from .statements import Statement, block

if TYPE_CHECKING:
    from ..walk import Walk


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function, ready to be executed.

    - `body`: its statements.
    - `defaults`: expressions by parameter.
    """

    body: list[Statement]
    defaults: dict[str, Any]


class Loader:
    """The files of a kernel, each read once.

    - `folders`: where the files of absolute imports are looked up.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.folders = tuple(folders)
        self.files: dict[Path, Module] = {}

    def module(self, path: Path) -> Module:
        """Return the module of a file."""
        path = path.resolve()
        if path not in self.files:
            tree = read(path.read_text(encoding="utf-8"), path.name)
            self.files[path] = Module(tree, path.name, self, path)
        return self.files[path]

    def find(self, name: str, folder: Path | None) -> Module | None:
        """Return the module of a dotted name below a folder, or None."""
        parts = name.split(".") if name else []
        for base in self.folders if folder is None else (folder,):
            at = base.joinpath(*parts)
            for path in (at.with_suffix(".py") if parts else None, at / "__init__.py"):
                if path is not None and path.is_file():
                    return self.module(path)
        return None


def read(source: str, name: str = "") -> ast.Module:
    """Return the tree of a text.

    - Raises KernelError: the text is not Python, or nested too deeply.
    """
    where = f"{name}: " if name else ""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 1) or 1
        raise KernelError(line, f"{where}not Python: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise KernelError(1, f"{where}too deeply nested") from error
    bounded(tree)
    return tree


class Module(KernelFile):
    """A kernel file.

    - `main`: whether it is the file of the kernel.
    - `name`: its file's name.
    """

    def __init__(
        self, tree: ast.Module, name: str, loader: Loader, path: Path | None, main: bool = False
    ) -> None:
        self.tree, self.name, self.loader, self.path, self.main = tree, name, loader, path, main
        self.statements: dict[str, list[ast.stmt]] = {}
        for node in tree.body:
            for each in Scope(self, ast.Module([node], [])).own:
                self.statements.setdefault(each, []).append(node)
        self._functions: dict[ast.AST, Compiled] = {}
        self._compiled: dict[ast.stmt, list[Statement]] = {}

    # ---- Names -------------------------------------------------------------------------------

    def defines(self, name: str) -> bool:
        """Tell whether the file has the name."""
        return name in self.statements

    def imported(self, name: str) -> Any:
        """Return the module of the package that a name always is, None if it is something else."""
        nodes = self.statements.get(name, [])
        if len(nodes) != 1 or not isinstance(nodes[0], (ast.Import, ast.ImportFrom)):
            return None
        path = self.import_path(name)
        return None if path is None else provided(path)

    def import_path(self, name: str) -> str | None:
        """Return ``nki.isa`` for the name that an import gives to it."""
        for node in self.statements.get(name, []):
            for alias in getattr(node, "names", []) if _is_import(node) else []:
                bound = alias.asname or alias.name.split(".")[0]
                if bound != name:
                    continue
                if isinstance(node, ast.Import):
                    return alias.name if alias.asname else name
                assert isinstance(node, ast.ImportFrom)
                if not node.level:
                    return f"{node.module}.{alias.name}"
        return None

    def path_of(self, node: ast.expr) -> str | None:
        """Return what names and dots stand for, as ``nki.jit``; calls are left out."""
        path = dotted(node.func if isinstance(node, ast.Call) else node)
        if path is None:
            return None
        first, dot, rest = path.partition(".")
        known = self.import_path(first)
        return path if known is None else known + dot + rest

    def lookup(self, name: str, walk: Walk) -> Any:
        """Return the value of a name, made when it is first needed in a walk."""
        values = walk.globals_of(self)
        if name in values:
            return values[name]
        frame, line = Frame(values, self, walk), walk.line
        for node in self.statements.get(name, []):
            if (self, node) in walk.executed:
                continue
            walk.executed.add((self, node))
            for each in self._block(node):
                each(frame)
        walk.line = line
        value = values.get(name, MISSING)
        if value is MISSING:
            raise Refused("language", f"'{name}' has no value yet")
        return value

    def _block(self, node: ast.stmt) -> list[Statement]:
        if node not in self._compiled:
            self._compiled[node] = block([node], Scope(self, ast.Module([node], [])))
        return self._compiled[node]

    def evaluate(self, node: ast.expr, frame: Frame, more: dict[str, Any] | None = None) -> Any:
        """Return the value of an expression of a class or of a caller."""
        scope = Scope(self, ast.Module([], []))
        names = frame.names if more is None else {**frame.names, **more}
        scope.own = set(names)
        return ex.expression(node, scope)(Frame(names, self, frame.walk, frame.parent))

    # ---- Imports -----------------------------------------------------------------------------

    def import_of(self, node: ast.Import | ast.ImportFrom, walk: Walk) -> dict[str, Any]:
        """Return the names that an import defines."""
        found: dict[str, Any] = {}
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = alias.name if alias.asname else alias.name.split(".")[0]
                found[alias.asname or path] = self._module_at(path)
            return found
        base = node.module or ""
        file = self._relative(node) if node.level else self._absolute(base)
        for alias in node.names:
            name = alias.asname or alias.name
            if node.level == 0 and base.split(".")[0] in ROOTS:
                found[name] = provided(f"{base}.{alias.name}") or Unknown(f"{base}.{alias.name}")
            elif file is not None and file.defines(alias.name):
                found[name] = file.lookup(alias.name, walk)
            else:
                inner = self._inner(node, alias.name)
                found[name] = inner if inner is not None else Unknown(f"import {base}.{alias.name}")
        return found

    def _inner(self, node: ast.ImportFrom, name: str) -> Any:
        """Return a file of a folder that is imported from."""
        path = ".".join(part for part in (node.module, name) if part)
        if not node.level:
            return self.loader.find(path, None)
        folder = self._folder(node.level)
        return None if folder is None else (self.loader.find(path, folder))

    def _module_at(self, path: str) -> Any:
        value = provided(path)
        if value is None:
            value = self.loader.find(path, None)
        return Unknown(f"import {path}") if value is None else value

    def _absolute(self, path: str) -> Module | None:
        """Return a file of a folder, or one beside this one."""
        found = self.loader.find(path, None)
        if found is None and self.path is not None:
            found = self.loader.find(path, self.path.parent)
        return found

    def _relative(self, node: ast.ImportFrom) -> Module | None:
        folder = self._folder(node.level)
        return None if folder is None else self.loader.find(node.module or "", folder)

    def _folder(self, level: int) -> Path | None:
        if self.path is None or level > len(self.path.parents):
            return None
        return self.path.parents[level - 1]

    # ---- Functions ---------------------------------------------------------------------------

    def compile(
        self,
        node: ast.FunctionDef | ast.Lambda,
        parent: Scope | None = None,
        strict: bool = False,
    ) -> Compiled:
        """Return a function, ready to be executed; compiled once."""
        if node not in self._functions:
            outside = parent or Scope(self, ast.Module([], []))
            scope = Scope(self, node, parent, strict)
            args = node.args
            every = [*args.posonlyargs, *args.args]
            given = list(zip(every[len(every) - len(args.defaults) :], args.defaults, strict=True))
            for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
                if value is not None:
                    given.append((arg, value))
            defaults = {arg.arg: ex.expression(value, outside) for arg, value in given}
            if isinstance(node, ast.Lambda):
                result = ast.copy_location(ast.Return(node.body), node.body)
                body = block([result], scope)
            else:
                body = block(node.body, scope)
            self._functions[node] = Compiled(body, defaults)
        return self._functions[node]


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _auto(walk: Walk) -> Any:
    return AUTO


def _field(walk: Walk, default: Any = MISSING, default_factory: Any = MISSING, **_: Any) -> Default:
    return Default(default, default_factory)


_PROVIDED: dict[str, Any] = {
    **NAMESPACES,
    **MODULES,
    "enum.auto": Builtin("auto", _auto),
    "dataclasses.field": Builtin("field", _field),
    "nki.language.NKIObject": Class("NKIObject", (), {}),
}

#: Packages whose names are provided here, or not at all.
ROOTS = {
    *("nki", "neuronxcc", "math", "os", "enum", "dataclasses", "typing", "numpy", "__future__"),
    *("functools", "itertools"),
}


def provided(path: str) -> Any:
    """Return a module of the package or a name in one, None if there is none."""
    if path in _PROVIDED:
        return _PROVIDED[path]
    front, _, name = path.rpartition(".")
    if front in _PROVIDED and isinstance(_PROVIDED[front], Namespace):
        return _PROVIDED[front].members.get(name)
    return None
