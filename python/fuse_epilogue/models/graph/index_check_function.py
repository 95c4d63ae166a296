"""The function that checks indices: one pass over them, then an assertion for each range."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .rewriting import known_shape

#: Name of the functions in a module, which may have a number after it.
NAME = "check_indices"
#: What a message calls an index that is not known.
AN_INDEX = "an index"
#: Between what is wrong and what would be right in a message.
ALLOWED = "is out of range: allowed are "


def check_function(tensor: Any, operator: str, what: str, ends: Sequence[Any]) -> tirx.PrimFunc:
    """Return a function that raises IndexError unless indices are inside of their ranges.

    It takes the indices, and the smallest and the largest value for each element of their last
    axis, or for all of them if there is one pair.

    - `tensor`: tvm.relax.Var of the indices, of a known shape.
    - `operator`, `what`: who reads at the indices, and where they are from, for the message.
    - `ends`: the smallest and the largest value of each range, as the message has them.
    """
    sizes = [
        size if isinstance(size, tirx.IntImm) else tirx.Var(f"n{at}", "int64")
        for at, size in enumerate(known_shape(tensor) or [])
    ]
    with IRBuilder() as builder:
        with T.prim_func(is_private=True, s_tir=True):
            T.func_name(NAME)
            T.func_attr({"tirx.noalias": True})
            index = T.arg("indices", T.buffer(sizes, str(tensor.ty.dtype.dtype)))
            limits = [
                T.arg(f"{'most' if at % 2 else 'least'}_{at // 2}", tirx.Var("", "int64"))
                for at in range(len(ends))
            ]
            found = T.sblock_alloc_buffer([len(ends)], "int64")
            IRBuilder.name("found", found)
            for at in range(0, len(ends), 2):
                last = [] if len(ends) == 2 else [at // 2]
                _scan(index, found, at, sizes[: len(sizes) - len(last)], last, limits[at])
                least, most = map(_text, ends[at : at + 2])
                message = f"{operator}: {AN_INDEX} of {what} {ALLOWED}{least} to {most}"
                inside = tirx.all(found[at] >= limits[at], found[at + 1] <= limits[at + 1])
                with T.Assert(inside, message, "IndexError"):
                    T.evaluate(0)
    return builder.get()


def _scan(index: Any, found: Any, at: int, sizes: Sequence[Any], last: list[int], low: Any) -> None:
    """Write loops that find the smallest and the largest index; `low` - 1 if there is none."""
    T.buffer_store(found, low, [at])
    T.buffer_store(found, low - 1, [at + 1])
    # Two more loops: TVM's grid of one loop is a variable, not a list.
    with T.grid(*sizes, 1, 1) as loops:
        value = T.cast(index[(*loops[: len(sizes)], *last)], "int64")
        T.buffer_store(found, T.min(found[at], value), [at])
        T.buffer_store(found, T.max(found[at + 1], value), [at + 1])


def _text(end: Any) -> str:
    """Return an end of a range for people: for an expression of sizes what TVM prints."""
    return re.sub(r"T\.int64\((\w+)\)", r"\1", str(end))
