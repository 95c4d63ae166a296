"""What two pieces of a function have to do with each other: loops around both, shared buffers."""

from __future__ import annotations

from typing import Any

from ..tir_tree import handle
from .tree import Accesses, Block, Loose


def shared_loops(a: Block, b: Block) -> list[Any]:
    """Return the loops around both blocks, within their scope."""
    inner = {handle(loop.loop_var) for loop in b.loops}
    return [loop for loop in a.loops if handle(loop.loop_var) in inner]


def conflicts(moved: Accesses, block: Block | Loose) -> dict[int, Any]:
    """Return the buffers for which it matters who comes first, by handle.

    Example
    -------
    >>> conflicts(relu.touched(), other)                                  # doctest: +SKIP
    {}
    """
    other = block.touched()
    found = {k: v for k, v in other.writes.items() if k in moved.reads or k in moved.writes}
    return found | {k: v for k, v in moved.writes.items() if k in other.reads}
