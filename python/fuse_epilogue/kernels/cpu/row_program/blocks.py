"""Long rows of a softmax, in blocks: each is read from memory once.

    for blocks:  highest[block] = max(x);  e = exp(x - highest[block]), total[block] += e
    highest = max(highest[block]);  factor[block] = exp(highest[block] - highest)
    total = sum(factor[block] * total[block])
    for blocks:  y = e * factor[block] / total

The exponentials of a block are computed while it is in the nearest cache, and the next block is
fetched meanwhile. They are of differences from the maximum of the block: a factor, which is not
above 1, corrects them and their sum, as where a cascade is reduced in parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Var, prim

from ....recognize.stages import Axis
from ....tir.affine import affine_of
from ....tir.walk import handle, loads, same, substitute
from ..loops import index, loop, sequence, with_loads
from ..vector_math import exp_up_to_zero
from .accumulators import Values
from .passes import Pass, Work
from .shares import Exponentials
from .vectors import PassWriter

#: Elements of a block, and of the shortest row that is computed in blocks. A softmax of 16 rows of
#: 65,536 takes 0.84 of the time of three passes on AMD's Zen 5; in blocks of 1,024, 0.89; without
#: fetching the next block, 0.97.
BLOCK, LEAST_ROW = 4096, 3 * 4096
#: Elements that the size of a block is a multiple of: as many as all accumulators have.
STEP = 128


@dataclass(frozen=True)
class _States:
    """Buffers with an element for each block: its maximum, its factor, and each of its sums."""

    highest: Any
    factor: Any
    totals: dict[int, Any]

    def all(self) -> list[Any]:
        """Return the buffers."""
        return [self.highest, self.factor, *self.totals.values()]


def is_softmax(passes: Sequence[Pass], exponentials: Exponentials) -> bool:
    """Return whether passes are a maximum, exponentials and their sums, and elementwise work.

    - `exponentials`: what is known of the passes.
    """
    if len(passes) < 2:
        return False
    first, second, *others = passes
    extents = [math.prod(each.extents) for each in passes]
    if any(each.kept or len(each.domain) > 1 for each in passes) or extents[0] != extents[1]:
        return False
    if any(extent not in (1, extents[0]) for extent in extents) or len(first.works) != 1:
        return False
    (highest,) = first.works
    return (
        highest.reduction is not None
        and isinstance(highest.reduction.merged[0], prim.Max)
        and _starts_finite(highest)
        and all(_is_of_exponentials(work, highest, exponentials) for work in second.works)
        and not any(work.reduction for each in others for work in each.works)
    )


def _starts_finite(highest: Work) -> bool:
    """Whether a maximum begins with a finite number: -inf less it is -inf, not NaN."""
    assert highest.reduction is not None
    (start,), (neutral,) = highest.reduction.starts, highest.reduction.neutral
    first = neutral if start is None else start
    return isinstance(first, prim.FloatImm) and math.isfinite(first.value)


def _is_of_exponentials(work: Work, highest: Work, exponentials: Exponentials) -> bool:
    """Whether a stage computes exponentials of differences from a maximum, or their sum."""
    (buffer, _), *others = work.targets
    known: Any = exponentials.elements if work.reduction is None else exponentials.totals
    if others or handle(buffer) not in known:
        return False
    (maximum, _), *_rest = highest.targets
    (value,) = work.values
    read = [load.source for load in loads(value)]
    is_sum = any(handle(each) in exponentials.elements for each in read)
    starts = work.reduction is not None and work.reduction.starts[0] is not None
    return not starts and (is_sum or any(same(each, maximum) for each in read))


class BlockedRow:
    """Writes the loops of a row in blocks.

    - `passes`: of :func:`is_softmax`.
    - `lanes`: number of elements of a vector, in each pass.
    """

    def __init__(
        self, passes: Sequence[Pass], exponentials: Exponentials, lanes: Sequence[int]
    ) -> None:
        self.first, self.second, *self.others = passes
        self.elements, self.all_lanes = exponentials.elements, list(lanes)
        self.extent = self.first.extents[0]
        count = -(-self.extent // BLOCK)
        self.size = -(-self.extent // count // STEP) * STEP
        self.count, self.rest = divmod(self.extent, self.size)
        number = self.count + bool(self.rest)
        self.highest = self.first.works[0]
        self.totals = [work for work in self.second.works if work.reduction is not None]

        def state(name: str) -> Any:
            return tirx.decl_buffer([index(number)], "float32", name, layout=None)

        self.states = _States(
            state("highest_of_block"),
            state("factor_of_block"),
            {handle(work.targets[0][0]): state("total_of_block") for work in self.totals},
        )

    @property
    def lanes(self) -> int:
        """Number of elements of the widest vectors."""
        return max(self.all_lanes)

    def body(self, values: Values) -> Any:
        """Return the statements of a row, for some values of the outer axes."""
        lanes = iter(self.all_lanes[2:])
        return sequence(
            [
                *map(tirx.AllocBuffer, self.states.all()),
                *self.blocks(lambda begin, block, size: self.reduced(values, begin, block, size)),
                *self.merged(values),
                *(self.after(each, values, next(lanes)) for each in self.others),
            ]
        )

    def blocks(self, body: Callable[[Any, Any, int], Any]) -> list[Any]:
        """Return a loop over the blocks; `body` takes the first element, the number, the size."""
        size = index(self.size)
        parts = [loop("block", 0, self.count, lambda n: body(n * size, n, self.size))]
        if self.rest:
            number = index(self.count)
            parts.append(body(number * size, number, self.rest))
        return parts

    def reduced(self, values: Values, begin: Any, block: Any, size: int) -> Any:
        """Return the maximum, the exponentials and the sums of a block."""
        first, second = (
            PassWriter(self.at(one, begin, size, block), lanes)
            for one, lanes in zip((self.first, self.second), self.all_lanes[:2], strict=True)
        )
        second.ahead = self.ahead(second, begin)
        return sequence([first.body(values), second.body(values)])

    def at(self, one: Pass, begin: Any, size: int, block: Any) -> Pass:
        """Return a pass over a block, whose maximum and sums are those of the block."""
        var = Var("within", "int64")
        place = {one.domain[0].var: begin + var}
        (highest, _), *_ = self.highest.targets

        def load(node: Any) -> Any:
            if same(node.source, highest):
                return tirx.BufferLoad(self.states.highest, [block])
            return node

        def target(buffer: Any, at: Any) -> tuple[Any, Any]:
            if same(buffer, highest):
                return self.states.highest, block
            total = self.states.totals.get(handle(buffer))
            return (buffer, substitute(at, place)) if total is None else (total, block)

        works = [
            Work(
                work.reduction,
                tuple(with_loads(substitute(value, place), load) for value in work.values),
                tuple(target(*each) for each in work.targets),
            )
            for work in one.works
        ]
        return replace(one, domain=[Axis(var, size)], works=works)

    def ahead(self, writer: PassWriter, begin: Any) -> list[Any]:
        """Return loads of the next block, by the place in this one: what the maximum reads."""
        assert writer.inner is not None
        (axis,) = self.first.domain
        found = {handle(x.source): x for v in self.highest.values for x in loads(v)}
        following = []
        for each in found.values():
            linear = affine_of(each.indices[0], [axis.var])
            if linear is None or linear.factors != (1,):
                continue
            place = begin + index(self.size) + writer.inner.var
            at = substitute(each.indices[0], {axis.var: place})
            last = index(math.prod(map(int, each.source.shape)) - 1)
            following.append(tirx.BufferLoad(each.source, [tirx.min(at, last)]))
        return following

    def merged(self, values: Values) -> list[Any]:
        """Return the statements that merge the maxima and the sums of all blocks."""
        states, number = self.states, int(self.states.highest.shape[0])
        reduction = self.highest.reduction
        assert reduction is not None
        (highest, at), *_ = self.highest.targets
        place = [substitute(at, values)]
        known = tirx.BufferLoad(highest, place)

        def larger(block: Any) -> Any:
            other = tirx.BufferLoad(states.highest, [block])
            return tirx.BufferStore(highest, reduction.combined([known], [other])[0], place)

        def add(block: Any) -> Any:
            less = tirx.BufferLoad(states.highest, [block]) - known
            factor = tirx.BufferLoad(states.factor, [block])
            stores = [tirx.BufferStore(states.factor, exp_up_to_zero(less), [block])]
            for work in self.totals:
                (total, at), *_ = work.targets
                of_row = [substitute(at, values)]
                of_block = tirx.BufferLoad(states.totals[handle(total)], [block])
                value = tirx.BufferLoad(total, of_row) + factor * of_block
                stores.append(tirx.BufferStore(total, value, of_row))
            return sequence(stores)

        return [
            tirx.BufferStore(highest, tirx.BufferLoad(states.highest, [index(0)]), place),
            loop("block", 1, number - 1, larger),
            *(
                tirx.BufferStore(
                    work.targets[0][0],
                    tirx.const(0.0, "float32"),
                    [substitute(work.targets[0][1], values)],
                )
                for work in self.totals
            ),
            loop("block", 0, number, add),
        ]

    def after(self, one: Pass, values: Values, lanes: int) -> Any:
        """Return the statements of a later pass, for which exponentials are corrected."""
        if not one.domain:
            return PassWriter(one, lanes).body(values)

        def load_in(block: Any) -> Callable[[Any], Any]:
            def load(node: Any) -> Any:
                if handle(node.source) not in self.elements:
                    return node
                return node * tirx.BufferLoad(self.states.factor, [block])

            return load

        def block(begin: Any, number: Any, size: int) -> Any:
            var = Var("within", "int64")
            place = {one.domain[0].var: begin + var}
            works = [
                Work(
                    work.reduction,
                    tuple(with_loads(substitute(v, place), load_in(number)) for v in work.values),
                    tuple((buffer, substitute(at, place)) for buffer, at in work.targets),
                )
                for work in one.works
            ]
            made = replace(one, domain=[Axis(var, size)], works=works)
            return PassWriter(made, lanes).body(values)

        return sequence(self.blocks(block))
