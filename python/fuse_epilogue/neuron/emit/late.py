"""Moves blocks that are marked late to where their results are needed first.

Transfers are started in the order of the program: what has to wait for others, such as a table that
is put together in HBM, holds up the loads after it. A late block comes after those loads.
"""

from __future__ import annotations

from .program import Allocate, Leaf, Loop, Node, Once, Program, loads, stores
from .refusals import EmitError

#: The annotation of such blocks.
LATE = "nki_late"


def move_late(program: Program) -> None:
    """Move late blocks after those that do not need them.

    - Raises EmitError: a late block is in a loop with others, nothing reads its result, or what it
      reads changes in between.
    """
    moved = [node for node in program.body if _is_late(node)]
    leaves = [leaf for node in moved for leaf in _leaves(node)]
    for leaf in program.leaves():
        if leaf.late and not any(leaf is each for each in leaves):
            raise EmitError("late", f"block '{leaf.block}'", "is in a loop with others")
    if not moved:
        return
    made = {id(store.tensor) for leaf in leaves for store in stores(leaf)}
    needed = {id(load.tensor) for leaf in leaves for s in stores(leaf) for load in loads(s.value)}
    start = program.body.index(moved[0])
    rest = [node for node in program.body[start:] if node not in moved]
    for leaf in (leaf for node in rest for leaf in _leaves(node)):
        for store in stores(leaf):
            if id(store.tensor) in made | needed:
                reason = f"writes '{store.tensor.name}', which a late block uses"
                raise EmitError("late", f"block '{leaf.block}'", reason)
    body = program.body[:start] + rest
    if not _insert(body, moved, made, ()):
        raise EmitError("late", f"block '{leaves[0].block}'", "nothing reads its result")
    program.body = body


def _is_late(node: Node) -> bool:
    leaves = _leaves(node)
    return bool(leaves) and all(leaf.late for leaf in leaves)


def _leaves(node: Node) -> list[Leaf]:
    if isinstance(node, Leaf):
        return [node]
    if isinstance(node, Loop | Once):
        return [leaf for each in node.body for leaf in _leaves(each)]
    return []


def _reads(node: Node, made: set[int]) -> bool:
    return any(
        id(load.tensor) in made
        for leaf in _leaves(node)
        for store in stores(leaf)
        for load in loads(store.value)
    )


def _insert(body: list[Node], moved: list[Node], made: set[int], loops: tuple[str, ...]) -> bool:
    """Insert blocks before the first statement that needs them.

    That is inside of a loop if other statements come before it there.
    """
    for at, node in enumerate(body):
        if not _reads(node, made):
            continue
        if isinstance(node, Loop):
            before = [each for each in node.body if not isinstance(each, Allocate)]
            first = next(each for each in before if _reads(each, made))
            if before[0] is not first or _reaches(first, made):
                return _insert(node.body, moved, made, (*loops, node.name))
        body[at:at] = [Once(loops, list(moved))] if loops else moved
        return True
    return False


def _reaches(node: Node, made: set[int]) -> bool:
    """Whether something comes before the first need inside of a loop."""
    if not isinstance(node, Loop):
        return False
    before = [each for each in node.body if not isinstance(each, Allocate)]
    first = next(each for each in before if _reads(each, made))
    return before[0] is not first or _reaches(first, made)
