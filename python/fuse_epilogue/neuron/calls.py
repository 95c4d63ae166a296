"""Calls that a kernel may hold: their arguments by parameter."""

from __future__ import annotations

import ast

from .errors import KernelError
from .grammar import SPACES, module_name
from .instructions import ENGINES, INSTRUCTIONS, OPERATIONS, REQUIRED
from .trace import ITEMSIZE


def positional(call: ast.Call, names: tuple[str, ...]) -> list[ast.expr]:
    """Return the arguments of a call in the order of its parameters, all of them required."""
    given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given:
            raise KernelError(call.lineno, f"{ast.unparse(call.func)}: arguments are given once")
        given[keyword.arg] = keyword.value
    if len(call.args) > len(names) or set(given) != set(names):
        raise KernelError(call.lineno, f"{ast.unparse(call.func)} takes {', '.join(names)}")
    return [given[name] for name in names]


def allocation(call: ast.Call) -> tuple[ast.expr, ast.expr, str]:
    """Return shape, type and the name of the memory of ``nl.ndarray`` and ``nl.zeros``."""
    function = ast.unparse(call.func)
    if len(call.args) + len(call.keywords) == 2:
        raise KernelError(call.lineno, f"{function}: say where, for example buffer=nl.sbuf")
    shape, dtype, space = positional(call, ("shape", "dtype", "buffer"))
    if isinstance(shape, ast.List):
        raise KernelError(call.lineno, "a shape is a tuple, lists are not allowed")
    name = module_name(space, "nl")
    if name not in SPACES:
        raise KernelError(
            call.lineno,
            f"buffer is one of {', '.join('nl.' + it for it in SPACES)}, not {ast.unparse(space)}",
        )
    if module_name(dtype, "nl") not in ITEMSIZE and not (
        isinstance(dtype, ast.Attribute) and dtype.attr == "dtype"
    ):
        raise KernelError(
            call.lineno,
            f"dtype is one of {', '.join('nl.' + it for it in ITEMSIZE)} or the .dtype of a "
            f"tensor, not {ast.unparse(dtype)}",
        )
    return shape, dtype, name


def access_pattern(call: ast.Call) -> tuple[list[list[ast.expr]], ast.expr | None]:
    """Return the pairs and the offset of ``tile.ap(...)``; pairs may be written as lists."""
    given = dict(zip(("pattern", "offset"), call.args, strict=False))
    given |= {it.arg: it.value for it in call.keywords if it.arg is not None}
    if len(call.args) + len(call.keywords) != len(given) or not {"pattern"} <= set(given) <= {
        "pattern",
        "offset",
    }:
        raise KernelError(call.lineno, "ap takes pattern and offset")
    pattern = given["pattern"]
    pairs = pattern.elts if isinstance(pattern, (ast.List, ast.Tuple)) else []
    if not pairs or not all(
        isinstance(pair, (ast.List, ast.Tuple)) and len(pair.elts) == 2 for pair in pairs
    ):
        raise KernelError(call.lineno, "the pattern of ap is ((stride, count), ...)")
    return [pair.elts for pair in pairs if isinstance(pair, (ast.List, ast.Tuple))], given.get(
        "offset"
    )


def bind(call: ast.Call, name: str) -> dict[str, ast.expr | str]:
    """Return the arguments of an instruction by parameter.

    Operations and the engine become their names; everything else stays an expression.

    Raises
    ------
    KernelError
        Missing, unknown or repeated arguments, or an operation that is not one.
    """
    instruction = INSTRUCTIONS[name]
    parameters = {it.name: it for it in instruction.parameters}
    given: dict[str, ast.expr] = {}
    pairs = list(zip(parameters, call.args, strict=False))
    if len(call.args) > len(parameters):
        raise KernelError(call.lineno, f"nisa.{name} takes {', '.join(parameters)}")
    for key, value in [*pairs, *((it.arg, it.value) for it in call.keywords)]:
        if key == "mask":
            raise KernelError(call.lineno, "there is no mask=: use a slice where it would hold")
        if key not in parameters and key != "engine":
            raise KernelError(call.lineno, f"nisa.{name} takes {', '.join(parameters)}, not {key}")
        if key in given:
            raise KernelError(call.lineno, f"nisa.{name}: {key} is given twice")
        given[key] = value
    bound: dict[str, ast.expr | str] = {}
    for key, parameter in parameters.items():
        if key in given and parameter.kind in OPERATIONS:
            operation = _operation(call, name, key, given.pop(key), parameter.kind)
            if operation is not None or parameter.default is not None:
                bound[key] = operation or ""
        elif key in given:
            bound[key] = given.pop(key)
            if isinstance(bound[key], (ast.List, ast.ListComp)):
                raise KernelError(
                    call.lineno, f"{key} is a list: lists are not allowed, use a tuple"
                )
        elif parameter.default is REQUIRED:
            raise KernelError(call.lineno, f"nisa.{name} needs {key}")
    if "engine" in given:
        engine = ENGINES.get(module_name(given["engine"], "nisa") or "")
        if engine not in instruction.engines:
            raise KernelError(
                call.lineno,
                f"nisa.{name} runs on the {' or '.join(instruction.engines)} engine, "
                f"not on {ast.unparse(given['engine'])}",
                "engine",
            )
        bound["engine"] = engine
    return bound


def _operation(call: ast.Call, name: str, key: str, value: ast.expr, kind: str) -> str | None:
    if isinstance(value, ast.Constant) and value.value is None:
        return None
    operation = module_name(value, "nl")
    if operation not in OPERATIONS[kind]:
        names = ", ".join("nl." + it for it in OPERATIONS[kind])
        raise KernelError(call.lineno, f"nisa.{name}: {key} is one of {names}")
    return operation
