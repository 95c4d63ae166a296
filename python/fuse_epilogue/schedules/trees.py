"""What the schedules need of TIR's trees: loads, variables, and replacing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad, Var


def handle(node: Any) -> int:
    """Return what tells an object of TVM from any other."""
    return int(node.__chandle__())


def loads(node: Any) -> list[Any]:
    """Return every load from a buffer in a node, in order."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (TensorLoad, found.append))
    return found


def uses(node: Any, *variables: Any) -> bool:
    """Whether any of some variables (or buffers) occurs in a node."""
    wanted = {handle(var) for var in variables}
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (Var, found.append))
    return any(handle(var) in wanted for var in found)


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """Return a node with variables replaced.

    Parameters
    ----------
    node : Expr or Stmt
    values : Mapping[Var, Expr]

    Example
    -------
    >>> from tvm import tirx
    >>> i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    >>> substitute(i * 4 + j, {j: tirx.const(1)})
    i * 4 + 1
    """
    table = {handle(var): value for var, value in values.items()}
    return tvm_ffi.structural_map(node, (Var, lambda var: table.get(handle(var), var)))


def replace(node: Any, kind: Any, rule: Callable[[Any], Any]) -> Any:
    """Return a node with `rule(part)` in the place of each part of a kind, outermost first."""
    return tvm_ffi.structural_map(node, (kind, rule), order="pre")
