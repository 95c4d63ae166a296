"""Blocks that check integers of a call, such as indices, before anything is computed from them.

Each is a block of its own with one assertion, so that a wrong call raises ValueError whatever is
scheduled after it, and before a buffer is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from .arguments import Size
from .writer import Index, Writer


def check_data(
    writer: Writer,
    name: str,
    dims: Mapping[str, Size],
    reads: Callable[[Index], list[Any]],
    holds: Callable[[Index], Any],
    message: str,
) -> None:
    """Write a block that raises ValueError unless a condition holds at each index.

    - `writer`: where the function is written.
    - `name`: name of the block.
    - `dims`: the letters and sizes of its loops.
    - `reads`, `holds`: the regions that it reads, and the condition, both at an index.
    - `message`: the sentence of the error.
    """
    with writer.block(name, dims) as at:
        T.reads(*reads(at))
        T.writes()
        with T.Assert(holds(at), message, "ValueError"):
            T.evaluate(0)


def check_sequences(
    writer: Writer, numbers: Any, n: Size, w: Size, count: int | None = None
) -> None:
    """Check that the sequence numbers of each image do not decrease.

    - `writer`: where the function is written.
    - `numbers`: the buffer [N, W].
    - `n`, `w`: its sizes.
    - `count`: the numbers are from 0 to `count` - 1, if it is not None.
    """

    def holds(at: Index) -> Any:
        image, column = at
        number = numbers[image, column]
        ordered = numbers[image, T.max(column - 1, 0)] <= number
        return ordered if count is None else tirx.all(ordered, number >= 0, number < count)

    within = "" if count is None else f", each from 0 to {count - 1}"
    check_data(
        writer,
        "check_sequences",
        {"n": n, "w": w},
        lambda at: [numbers[at[0], T.max(at[1] - 1, 0) : at[1] + 1]],
        holds,
        f"sequences must not decrease along the columns of an image{within}",
    )


def check_positions(writer: Writer, positions: Any, n: Size) -> None:
    """Check that no request has a negative number of columns before it."""
    check_data(
        writer,
        "check_positions",
        {"n": n},
        lambda at: [positions[at]],
        lambda at: positions[at] >= 0,
        "positions must not be negative: each is the number of columns before this call",
    )


def check_indices(writer: Writer, indices: Any, n: Size, pool: Size) -> None:
    """Check that each request has a state of its own in the pool."""
    check_data(
        writer,
        "check_indices",
        {"n": n},
        lambda at: [indices[at]],
        lambda at: tirx.all(indices[at] >= 0, indices[at] < pool),
        f"indices must be states of the pool: each from 0 to {pool} - 1",
    )
    check_data(
        writer,
        "check_distinct",
        {"n": n, "m": n},
        lambda at: [indices[at[0]], indices[at[1]]],
        lambda at: tirx.any(at[0] <= at[1], indices[at[0]] != indices[at[1]]),
        "indices must differ: two requests of one call cannot update the same state",
    )
