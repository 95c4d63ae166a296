"""Which texts are kernels: NKI's own rules, and the part of Python that is understood here.

A text is parsed and looked at, never executed. Everything that is not listed here is refused.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from .errors import KernelError
from .grammar import FUNCTIONS, IMPORTS, is_text
from .limits import bounded
from .reader import Reader


@dataclass(frozen=True)
class KernelText:
    """A text that passed.

    Attributes
    ----------
    name : str
        The function's.
    parameters : tuple[str, ...]
        The tensors it takes.
    line : int
        Of ``def``.
    body : tuple[ast.stmt, ...]
        Without the docstring.
    doc : str
        The docstring, "" without one.
    """

    name: str
    parameters: tuple[str, ...]
    line: int
    body: tuple[ast.stmt, ...]
    doc: str


def parse(source: str) -> KernelText:
    """Read the text of one kernel.

    Parameters
    ----------
    source : str
        The imports `IMPORTS` and one function with the decorator ``@nki.jit``.

    Raises
    ------
    KernelError
        Not a kernel, with the line and the reason.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise KernelError(getattr(error, "lineno", 1) or 1, f"not Python: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise KernelError(1, "too deeply nested") from error
    bounded(tree)
    return _module(tree)


def _module(tree: ast.Module) -> KernelText:
    kernel: ast.FunctionDef | None = None
    imported: set[str] = set()
    for at, node in enumerate(tree.body):
        if at == 0 and is_text(node):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported.add(_import(node))
        elif isinstance(node, ast.FunctionDef):
            if kernel is not None:
                raise KernelError(node.lineno, f"a second function: '{kernel.name}' is the kernel")
            kernel = node
        else:
            raise KernelError(node.lineno, "a kernel file holds imports and one function")
    if kernel is None:
        raise KernelError(1, "there is no function with the decorator @nki.jit")
    for text in IMPORTS:
        if text not in imported:
            raise KernelError(kernel.lineno, f"`{text}` is missing")
    return _kernel(kernel)


def _import(node: ast.Import | ast.ImportFrom) -> str:
    text = ast.unparse(node)
    if "neuronxcc" in text:
        raise KernelError(
            node.lineno, f"neuronxcc is the old dialect, now an error: use {', '.join(IMPORTS)}"
        )
    if text not in IMPORTS:
        raise KernelError(node.lineno, f"the imports of a kernel are: {', '.join(IMPORTS)}")
    return text


def _kernel(node: ast.FunctionDef) -> KernelText:
    decorators = [ast.unparse(it) for it in node.decorator_list]
    if decorators != ["nki.jit"]:
        raise KernelError(node.lineno, "a kernel has one decorator, @nki.jit, without arguments")
    args = node.args
    if args.kwonlyargs:
        raise KernelError(node.lineno, "keyword-only parameters are not allowed in a kernel")
    if args.vararg or args.kwarg or args.posonlyargs or args.defaults:
        raise KernelError(node.lineno, "a kernel has plain parameters, without defaults")
    if getattr(node, "type_params", ()):  # since Python 3.12
        raise KernelError(node.lineno, "a kernel has no type parameters")
    for note in (*(it.annotation for it in args.args), node.returns):
        if note is not None:
            raise KernelError(
                note.lineno,
                "nothing in a kernel is annotated: types come with the tensors, write x, not x: T",
            )
    names = tuple(it.arg for it in args.args)
    body = node.body
    doc = ""
    if is_text(body[0]):
        doc = ast.get_docstring(node) or ""
        body = body[1:]
    known = set(names) | {
        it.id
        for statement in body
        for it in ast.walk(statement)
        if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)
    }
    for name in sorted(known & {"nki", "nisa", "nl", *FUNCTIONS}):
        raise KernelError(node.lineno, f"'{name}' is taken, use another name")
    if not body or not isinstance(body[-1], ast.Return):
        raise KernelError(body[-1].lineno if body else node.lineno, "a kernel ends with `return`")
    reader = Reader(known)
    for statement in body[:-1]:
        reader.statement(statement)
    reader.returned(body[-1])
    return KernelText(node.name, names, node.lineno, tuple(body), doc)
