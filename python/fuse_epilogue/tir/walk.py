"""Walks over trees of TIR: identity of objects, variables, loads, replacing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm.ir import Call, TensorLoad, Var, prim
from tvm.tirx import BufferStore


def handle(node: Any) -> int:
    """Return what tells an object of TVM from any other."""
    return int(node.__chandle__())


def same(a: Any, b: Any) -> bool:
    """Whether two references are to one object."""
    return handle(a) == handle(b)


def same_all(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two sequences are of the same objects."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def variables(node: Any) -> list[Any]:
    """Return every occurrence of a variable (or a buffer) in a node, in order."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (Var, found.append))
    return found


def uses(node: Any, *wanted: Any) -> bool:
    """Whether any of some variables (or buffers) occurs in a node."""
    handles = {handle(var) for var in wanted}
    return any(handle(var) in handles for var in variables(node))


def loads(node: Any) -> list[Any]:
    """Return every load from a buffer in a node, in order; None has none."""
    found: list[Any] = []
    if node is not None:
        tvm_ffi.structural_walk(node, (TensorLoad, found.append))
    return found


def parts_of(node: Any, *kinds: Any) -> list[Any]:
    """Return every part of a node that is of some kinds, in order, the node itself included."""
    parts: list[Any] = []
    tvm_ffi.structural_walk(node, (kinds, parts.append))
    return parts


def operator_name(value: Any) -> str:
    """Return the name of the operator that is called, an empty string for anything else."""
    return str(getattr(value.op, "name", "")) if isinstance(value, Call) else ""


def stored_to(node: Any) -> set[int]:
    """Return the handles of the buffers that a node has stores to."""
    return {handle(store.buffer) for store in parts_of(node, BufferStore)}


def conjuncts(condition: Any) -> list[Any]:
    """Return what must hold for a condition to hold."""
    if isinstance(condition, prim.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """Return a node with variables replaced.

    - `node`: Expr or Stmt.
    - `values`: by variable, or by its :func:`handle`.
    """
    if not values:
        return node
    table = {key if isinstance(key, int) else handle(key): by for key, by in values.items()}
    return tvm_ffi.structural_map(node, (Var, lambda var: table.get(handle(var), var)))


def substitute_part(expr: Any, part: Any, by: Any) -> Any:
    """Return an expression with one of its nodes replaced."""
    wanted = handle(part)
    kind = type(part)
    return tvm_ffi.structural_map(
        expr, (kind, lambda node: by if handle(node) == wanted else node), order="pre"
    )
