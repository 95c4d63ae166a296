"""Chooses the blocks of keys that a block of queries needs, where a mask hides some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from ..loops import index, loop, sequence, wide
from .hidden_keys import NO_SHARE, HiddenKeys
from .key_block import Block, Keys, buffer_of
from .key_ranges import Loaded


@dataclass(frozen=True)
class Skipped:
    """Values of a head that say which blocks of its keys may be skipped.

    - `greatest` (Expr): the greatest exponent of the values.
    - `limit` (Expr or None): the greatest weight of a hidden key, if it is to be compared with the
      maximum of its row.
    """

    mask: HiddenKeys
    greatest: Any
    limit: Any


class Needed:
    """The blocks of keys that are computed with a block of queries.

    - `begin` (Expr): the first query.
    - `count` (Expr): number of blocks of keys.
    """

    def __init__(self, skipped: Skipped, own: Block, begin: Any, count: Any) -> None:
        self.skipped, self.own, self.begin, self.count = skipped, own, begin, count
        self.buffer = buffer_of("needed", 3, dtype="int64")
        self.again = buffer_of("again", 1, dtype="int32")
        self.first, self.end, self.gaps = (
            tirx.BufferLoad(self.buffer, [index(at)]) for at in range(3)
        )

    @property
    def skips(self) -> Any:
        """Whether any block may be skipped."""
        ends = tirx.Or(self.first > index(0), self.end < self.count)
        return tirx.Or(ends, self.gaps > index(0)) if self.skipped.mask.keys.has_gaps else ends

    def unless_in_a_gap(self, step: Any, block: Keys, each_shown: Callable[..., Any]) -> Any:
        """Return what is computed for a whole block of keys, unless all of them are hidden.

        - `each_shown`: returns a loop over the queries and keys of both blocks, of a condition and
          a function of it.
        """
        keys = self.skipped.mask.keys
        if isinstance(keys, Loaded):
            return self.if_any(partial(each_shown, keys.condition), step)
        if not keys.has_gaps:
            return step
        last = self.begin + index(self.own.size.queries - 1)
        between = (block.first, block.first + index(block.most - 1))
        seen = keys.may_hold((self.begin, last), between)
        return tirx.IfThenElse(tirx.Or(self.gaps.equal(index(0)), seen), step, None)

    def if_any(self, each: Callable[[Callable[[Any], Any]], Any], step: Any) -> Any:
        """Return what is computed for a block of keys, unless a mask hides all of them.

        - `each`: returns a loop over all queries and keys, of a function of whether one is shown.
        """
        seen = buffer_of("seen", 1, dtype="int32")
        known = tirx.BufferLoad(seen, [index(0)])
        none, some = (tirx.const(number, "int32") for number in (0, 1))

        def store(value: Any) -> Any:
            return tirx.BufferStore(seen, value, [index(0)])

        return sequence(
            [
                tirx.AllocBuffer(seen),
                # If no block may be skipped, all of them are seen.
                store(tirx.Select(self.gaps > index(0), none, some)),
                each(lambda shown: store(known | tirx.Select(shown, some, none))),
                tirx.IfThenElse(known > none, step, None),
            ]
        )

    def around(self, computed: Callable[[], Any], size: int) -> Any:
        """Return the statements that choose the blocks, and those that compute them.

        - `size`: number of keys in a block.
        """
        mask = self.skipped.mask
        chosen = mask.blocks(
            self.begin, self.own.size.queries, size, self.count, self.skipped.greatest
        )
        before = [tirx.AllocBuffer(self.buffer), *self.stores(chosen)]
        if self.skipped.limit is None:
            return sequence([*before, computed()])

        def attempt(_number: Any) -> Any:
            steps = sequence([computed(), self.set_again(0), self.compared()])
            return tirx.IfThenElse(self.is_again, steps, None)

        return sequence(
            [
                *before,
                tirx.AllocBuffer(self.again),
                self.set_again(1),
                loop("attempt", 0, 2, attempt),
            ]
        )

    @property
    def is_again(self) -> Any:
        """Whether the blocks are to be computed."""
        return tirx.BufferLoad(self.again, [index(0)]) > tirx.const(0, "int32")

    def set_again(self, value: int) -> Any:
        """Return the store that says whether the blocks are to be computed."""
        return tirx.BufferStore(self.again, tirx.const(value, "int32"), [index(0)])

    def stores(self, values: tuple[Any, Any, Any]) -> list[Any]:
        """Return the stores of the blocks that are computed."""
        return [tirx.BufferStore(self.buffer, v, [index(at)]) for at, v in enumerate(values)]

    def compared(self) -> Any:
        """Return the statements that ask for all blocks where a hidden key may have a share."""

        def query(number: Any) -> Any:
            highest = tirx.BufferLoad(self.own.highest, [number])
            none = self.skipped.limit - highest <= tirx.const(NO_SHARE, "float32")
            known = tirx.BufferLoad(self.again, [index(0)])
            value = tirx.Select(none, known, tirx.const(1, "int32"))
            return tirx.BufferStore(self.again, value, [index(0)])

        compare = loop("query", 0, wide(self.own.size.queries), query)
        return tirx.IfThenElse(
            self.skips, sequence([compare, *self.stores((index(0), self.count, index(0)))]), None
        )
