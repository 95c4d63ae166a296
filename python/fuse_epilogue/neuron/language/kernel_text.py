"""Finds the kernel in a file.

A text is parsed and interpreted, never executed by Python. What is not understood is refused: in
the kernel itself when it is read, elsewhere when it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import KernelError
from .modules import Loader, Module, read
from .objects import Function
from .scope import parameter_names


@dataclass(frozen=True)
class KernelText:
    """A text that passed.

    - `name`: the function's.
    - `parameters`: names of the parameters.
    - `optional`: parameters with a default.
    - `line`: line of ``def``.
    - `doc`: the docstring, "" without one.
    - `function`: the kernel.
    """

    name: str
    parameters: tuple[str, ...]
    optional: frozenset[str]
    line: int
    doc: str
    function: Function

    @property
    def body(self) -> list[ast.stmt]:
        """Return its statements, without the docstring."""
        node = self.function.node
        assert isinstance(node, ast.FunctionDef)
        return node.body[1:] if self.doc else node.body


def parse(
    source: str | Path, name: str | None = None, folders: Sequence[str | Path] = ()
) -> KernelText:
    """Read a kernel.

    - `source`: the text of a kernel file, or its path: then what it imports is looked up beside it.
    - `name`: which function, if the file has several with the decorator ``@nki.jit``.
    - `folders`: where else files that it imports are looked up.
    - Raises KernelError: not a kernel, with the line and the reason.
    """
    path = source if isinstance(source, Path) else None
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    loader = Loader([Path(folder) for folder in folders])
    own = path.name if path else "kernel"
    module = Module(read(text), own, loader, path, main=True)
    if path is not None:
        loader.files[path.resolve()] = module
    node = _kernel(module, name)
    _parameters(node)
    module.compile(node, strict=True)
    args = node.args
    count = len(args.defaults)
    optional = {it.arg for it in args.args[len(args.args) - count :]} if count else set()
    return KernelText(
        node.name,
        tuple(parameter_names(args)),
        frozenset(optional),
        node.lineno,
        ast.get_docstring(node) or "",
        Function(node, module),
    )


def _kernel(module: Module, name: str | None) -> ast.FunctionDef:
    found = []
    for node in module.tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        if name == node.name or (name is None and _is_kernel(module, node)):
            found.append(node)
    if not found:
        what = "with the decorator @nki.jit" if name is None else f"of the name {name}"
        raise KernelError(1, f"there is no function {what}")
    if len(found) > 1 and name is None:
        names = ", ".join(node.name for node in found)
        raise KernelError(
            found[1].lineno, f"there are several kernels, name one with kernel=: {names}"
        )
    return found[-1]


def _is_kernel(module: Module, node: ast.FunctionDef) -> bool:
    """Tell whether a function has the decorator, with or without arguments."""
    for decorator in node.decorator_list:
        path = module.path_of(decorator) or ""
        if path.startswith("neuronxcc."):
            raise KernelError(
                node.lineno,
                "neuronxcc is the old dialect, now an error: import nki, nki.isa and nki.language",
            )
        if path == "nki.jit":
            if not module.defines("nki") and ast.unparse(decorator).startswith("nki."):
                raise KernelError(node.lineno, "`import nki` is missing")
            return True
    return False


def _parameters(node: ast.FunctionDef) -> None:
    args = node.args
    if args.kwonlyargs:
        raise KernelError(node.lineno, "keyword-only parameters of a kernel are not supported here")
    if args.vararg or args.kwarg or args.posonlyargs:
        raise KernelError(node.lineno, "a kernel has plain parameters here, no stars")
    if getattr(node, "type_params", ()):  # since Python 3.12
        raise KernelError(node.lineno, "type parameters are not supported here")
