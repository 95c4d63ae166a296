"""Accesses of a function to memory, by the blocks of its root."""

from __future__ import annotations

from tvm import s_tir

from ...tir.walk import handle, same
from ..certificate.subject import demand
from ..certificate.tree import Accesses, Block, Tree


def outer_blocks(tree: Tree) -> list[Block]:
    """Return the blocks of the root, in order."""
    root = tree.blocks[0]
    return [b for b in tree.blocks[1:] if same(b.scope.block, root.block)]


def touched_by(tree: Tree, outer: list[Block]) -> dict[int, Accesses]:
    """Return what the statements in each block of the root access, by the block's place."""
    found = {block.place: Accesses() for block in outer}
    owner = {handle(block.realize): block.place for block in outer}
    for piece in tree.pieces():
        around = [node for node in piece.around if isinstance(node, s_tir.SBlockRealize)]
        own = [piece.realize] if isinstance(piece, Block) else []
        places = [owner[handle(n)] for n in (*around, *own) if handle(n) in owner]
        accesses = piece.touched()
        if not places:
            demand(not accesses.writes, "order", "there is a store outside of blocks")
            continue
        found[places[0]].reads.update(accesses.reads)
        found[places[0]].writes.update(accesses.writes)
    return found


def meet(one: Block, other: Block) -> bool:
    """Whether two blocks are in a common loop."""
    return bool(set(one.every_loop) & set(other.every_loop))


def overwritten(tree: Tree) -> set[int]:
    """Return the parameters that are overwritten after all that reads them, by handle."""
    outer = outer_blocks(tree)
    touched = touched_by(tree, outer)
    found = set()
    for param in map(handle, tree.func.params):
        readers = [block for block in outer if param in touched[block.place].reads]
        writers = [block for block in outer if param in touched[block.place].writes]
        later = all(r.place < w.place and not meet(r, w) for r in readers for w in writers)
        if len(writers) == 1 and later:
            found.add(param)
    return found
