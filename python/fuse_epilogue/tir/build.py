"""Building TIR from what there is: nodes with other fields, and parts replaced by their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from .nest import all_names

#: The fields of a node in the order of its constructor.
_FIELDS: dict[type, tuple[str, ...]] = {
    s_tir.SBlock: (
        "iter_vars",
        "reads",
        "writes",
        "name_hint",
        "body",
        "init",
        "alloc_buffers",
        "match_buffers",
        "annotations",
    ),
    s_tir.SBlockRealize: ("iter_values", "predicate", "block"),
    tirx.For: (
        "loop_var",
        "min",
        "extent",
        "kind",
        "body",
        "thread_binding",
        "annotations",
        "step",
    ),
    tirx.PrimFunc: ("params", "body", "ret_type", "attrs"),
}


def with_fields(node: Any, **fields: Any) -> Any:
    """Return a node with other values of some of its fields.

    - `node` (tvm.s_tir.SBlock, tvm.s_tir.SBlockRealize, tvm.tirx.For or tvm.tirx.PrimFunc): stays
      as it is.
    - `**fields`: by the name of a field of the node.
    - Raises TypeError: the node has no field of that name.
    """
    names = _FIELDS[type(node)]
    unknown = fields.keys() - set(names)
    if unknown:
        raise TypeError(f"{type(node).__name__} has no field '{min(unknown)}'")
    return type(node)(*(fields[name] if name in fields else getattr(node, name) for name in names))


def sequence(statements: Sequence[Any]) -> Any:
    """Return statements as one; those that are None are left out."""
    statements = [each for each in statements if each is not None]
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def in_root(body: Any, allocated: Iterable[Any] = (), name: str = "root", **fields: Any) -> Any:
    """Return a statement in a root block, which is what the body of a function is.

    - `body`: tvm.tirx.Stmt.
    - `allocated`: buffers that the block allocates.
    - `name`: name of the block.
    - `**fields`: other fields of the block, see :func:`with_fields`.
    """
    block = s_tir.SBlock([], [], [], name, body, alloc_buffers=list(allocated))
    return s_tir.SBlockRealize([], True, with_fields(block, **fields) if fields else block)


def with_unique_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function in which every block has a name of its own: the others get numbers."""
    names = all_names(func.body)
    taken = set(names)
    if len(taken) == len(names):
        return func
    seen: set[str] = set()

    def named(block: Any) -> Any:
        name, number = str(block.name_hint), 1
        while name in seen or (number > 1 and name in taken):
            name = f"{block.name_hint}_{number}"
            number += 1
        seen.add(name)
        return block if name == block.name_hint else renamed(block, name)

    return func.with_body(replace(func.body, s_tir.SBlock, named))


def renamed(block: Any, name: str) -> Any:
    """Return a block with another name."""
    return with_fields(block, name_hint=name)


def replace(node: Any, kind: Any, rule: Callable[[Any], Any]) -> Any:
    """Return a node with `rule(part)` in the place of each part of a kind, outermost first."""
    return tvm_ffi.structural_map(node, (kind, rule), order="pre")
