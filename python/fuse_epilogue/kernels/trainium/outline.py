"""A part of a function as a function of its own, and back: so that it can be rewritten alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import tirx

from ...tir.build import in_root, sequence, with_fields
from ...tir.nest import all_names, statements
from ...tir.walk import handle, stored_to, substitute, uses


def part_of(func: tirx.PrimFunc, block: str) -> tirx.PrimFunc | None:
    """Return the outermost loop around a block, as a function.

    - `block`: its name.
    - Returns: its parameters are those of the function that it uses and the intermediates that it
      shares with others; those that it writes come last. None if there is no such block.
    """
    root = func.body.block
    parts = statements(root.body)
    own = [part for part in parts if block in all_names(part)]
    if len(own) != 1:
        return None
    others = [part for part in parts if part is not own[0]]
    used = [buffer for buffer in (*func.params, *root.alloc_buffers) if uses(own[0], buffer)]
    inner = {
        handle(buffer)
        for buffer in root.alloc_buffers
        if not any(uses(part, buffer) for part in others)
    }
    written = stored_to(own[0])
    params = [buffer for buffer in used if handle(buffer) not in inner]
    params.sort(key=lambda buffer: handle(buffer) in written)
    return _function(func, params, own, [buffer for buffer in used if handle(buffer) in inner])


def pieces_of(func: tirx.PrimFunc, count: int) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    """Return the first statements of a function, and the others, as two functions.

    - `func`: its body has several loop nests.
    - `count`: how many are in the first function.
    - Returns: the parameters of each are those that it uses, and what the first computes for the
      second under one name; those that it writes come last.
    """
    root = func.body.block
    parts = statements(root.body)
    sides = parts[:count], parts[count:]
    made = []
    for own, others in (sides, sides[::-1]):
        used = [
            buffer
            for buffer in (*func.params, *root.alloc_buffers)
            if any(uses(part, buffer) for part in own)
        ]
        inner = [
            buffer
            for buffer in root.alloc_buffers
            if any(buffer.same_as(each) for each in used)
            and not any(uses(part, buffer) for part in others)
        ]
        kept = {handle(buffer) for buffer in inner}
        params = [buffer for buffer in used if handle(buffer) not in kept]
        made.append(_function(func, _with_results_last(params, own), own, inner))
    return made[0], made[1]


def put_back(func: tirx.PrimFunc, part: tirx.PrimFunc, written: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function with a part of it rewritten.

    - `part`: result of :func:`part_of`, or `func` itself.
    - `written`: the replacement. Its parameters are those of the part, but for their names.
    - Returns: with the parameters of `func`.
    """
    root, old, new = (each.body.block for each in (func, part, written))
    body = substitute(new.body, dict(zip(written.params, part.params, strict=True)))
    gone = {handle(each) for each in statements(old.body)}
    parts: list[Any] = []
    for each in statements(root.body):
        if handle(each) not in gone:
            parts.append(each)
        elif body is not None:
            parts += statements(body)
            body = None
    inner = {handle(buffer) for buffer in old.alloc_buffers}
    kept = [buffer for buffer in root.alloc_buffers if handle(buffer) not in inner]
    return _function(func, func.params, parts, [*new.alloc_buffers, *kept])


def _with_results_last(params: list[Any], own: Iterable[Any]) -> list[Any]:
    written = set().union(*map(stored_to, own))
    return sorted(params, key=lambda buffer: handle(buffer) in written)


def _function(
    like: tirx.PrimFunc, params: Iterable[Any], parts: list[Any], allocated: list[Any]
) -> tirx.PrimFunc:
    """Return a function of some statements, with the attributes of another one."""
    body = sequence(parts)
    root = like.body.block
    realize = in_root(body, allocated, root.name_hint, annotations=root.annotations)
    return with_fields(like, params=list(params), body=realize)
