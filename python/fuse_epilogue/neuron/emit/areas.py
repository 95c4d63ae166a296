"""The area in which a block's instructions run: conditions become ranges of axes, or a guard."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .linear import Interval, Linear, named_term
from .names import Names
from .program import Axis, Choose, Expression, Store, loads, with_parts
from .refusals import EmitError
from .text import Text
from .views import Area

#: Partitions that an instruction may start at, and how many it may then cover.
LONGEST_FROM = {0: 128, 32: 32, 64: 64, 96: 32}


@dataclass(frozen=True)
class Place:
    """Area of one assignment.

    - `area`: the range of each axis.
    - `guards`: conditions on outer loops, in Python.
    """

    area: Area
    guards: tuple[str, ...]


class Areas:
    """Makes places for a block.

    - `axes`: area that the block's instructions cover.
    - `partition`: which of them counts partitions.
    - `ranges`: the values of all terms.
    - `names`: those that are taken.
    - `text`: gets a line for every range that depends on outer loops.
    """

    def __init__(
        self,
        block: str,
        axes: list[Axis],
        partition: str | None,
        ranges: dict[str, Interval],
        names: Names,
        text: Text,
    ) -> None:
        self.block = block
        self.axes = axes
        self.partition = partition
        self.ranges = ranges
        self.names = names
        self.text = text

    @staticmethod
    def whole(axes: list[Axis], partition: str | None) -> Area:
        """Return the area of all iterations."""
        box = {axis.name: (Linear(), Linear({}, axis.extent)) for axis in axes}
        return Area(partition, tuple(axis.name for axis in axes if axis.name != partition), box)

    def place(self, conditions: tuple[Linear, ...]) -> Place | None:
        """Return where all conditions hold; None if that is nowhere."""
        box: dict[str, tuple[Linear, Linear]] = {
            axis.name: (Linear(), Linear({}, axis.extent)) for axis in self.axes
        }
        guards: list[str] = []
        for each in conditions:
            on = [axis.name for axis in self.axes if each.of(axis.name)]
            if len(on) > 1:
                raise EmitError(
                    "not-affine",
                    f"block '{self.block}'",
                    f"a condition couples the loops {' and '.join(on)}",
                )
            if on:
                self._narrow(box, on[0], each)
            else:
                guard = self._holds(each)
                if guard is None:
                    return None
                guards += [guard] if guard else []
        for axis in self.axes:
            start, stop = box[axis.name]
            low, high = (stop - start).bounds(self.ranges)
            if high <= 0:
                return None
            stem = "row" if axis.name == self.partition else axis.name
            start = self._name(start, f"{stem}_start")
            stop = self._name(stop, f"{stem}_stop")
            box[axis.name] = (start, stop)
            if low <= 0:
                guards.append(self._holds(stop - start + -1) or f"{start} < {stop}")
        free = tuple(axis.name for axis in self.axes if axis.name != self.partition)
        return Place(Area(self.partition, free, box), tuple(guards))

    def _narrow(self, box: dict[str, tuple[Linear, Linear]], name: str, condition: Linear) -> None:
        """Cut the range of an axis to where ``factor * axis + rest >= 0``."""
        factor, rest = condition.of(name), condition.without(name)
        start, stop = box[name]
        if factor > 0:
            box[name] = (self._extreme("max", start, self._quotient(rest, factor) * -1), stop)
        else:
            box[name] = (start, self._extreme("min", stop, self._quotient(rest, -factor) + 1))

    def _quotient(self, value: Linear, by: int) -> Linear:
        """Return ``value // by``."""
        if by == 1:
            return value
        if value.fixed is not None:
            return Linear({}, value.fixed // by)
        low, high = value.bounds(self.ranges)
        return named_term(self.ranges, f"({value}) // {by}", (low // by, high // by))

    def _extreme(self, which: str, a: Linear, b: Linear) -> Linear:
        """Return the larger or the smaller of two values."""
        low, high = (b - a).bounds(self.ranges)
        if low >= 0:
            return b if which == "max" else a
        if high <= 0:
            return a if which == "max" else b
        ends = [each.bounds(self.ranges) for each in (a, b)]
        choose = max if which == "max" else min
        values = (choose(e[0] for e in ends), choose(e[1] for e in ends))
        return named_term(self.ranges, f"{which}({a}, {b})", values)

    def _name(self, value: Linear, name: str) -> Linear:
        """Give a value that is not a plain sum a name of its own."""
        if all(term.isidentifier() for term in value.terms):
            return value
        made = self.text.define(str(value), lambda: self.names.unique(name))
        self.ranges[made] = value.bounds(self.ranges)
        return Linear({made: 1})

    def _holds(self, condition: Linear) -> str | None:
        """Write a condition on outer loops: empty if it always holds, None if it never does."""
        low, high = condition.bounds(self.ranges)
        if low >= 0:
            return ""
        if high < 0:
            return None
        positive = Linear({k: n for k, n in condition.terms.items() if n > 0})
        negative = Linear({k: -n for k, n in condition.terms.items() if n < 0})
        if not positive.terms:
            return f"{negative} <= {condition.constant}"
        return f"{positive} >= {negative + -condition.constant}"


def pieces(store: Store) -> list[Store]:
    """Split a store whose value depends on a condition: small parts first, the main one last.

    ``d = a if p and q else b`` becomes ``d = b`` where p fails, ``d = b`` where p holds and q
    fails, and ``d = a`` where both hold.
    """
    choice = _choice(store.value)
    if choice is None:
        return [store]
    found: list[Store] = []
    held = store.conditions
    for condition in choice.conditions:
        fails = condition * -1 + -1
        other = replace_choice(store.value, choice, choice.b)
        found += pieces(Store(store.tensor, store.index, other, (*held, fails)))
        held = (*held, condition)
    main = replace_choice(store.value, choice, choice.a)
    return [*found, *pieces(Store(store.tensor, store.index, main, held))]


def filled_from_below(
    parts: list[tuple[Store, Place]], numbers: list[bool], row: Linear
) -> list[tuple[Store, Place]]:
    """Let numbers fill from a partition at which instructions may start, before the rest is there.

    ``d = a if row < 3 else 0`` becomes ``d = 0`` everywhere, then ``d = a`` in rows 0 to 2: no
    instruction starts at row 3. The parts of a store are disjoint and cover all that it writes, so
    that each row below a part's own is written by a part that starts below it, and so comes later.

    - `parts`: the parts of a store, in any order.
    - `numbers`: whether each is a number.
    - `row`: the partition that the store writes.
    """
    rows = [_rows(place.area, row) for _, place in parts]
    known = [each for each in rows if each is not None]
    reads = {id(load.tensor) for store, _ in parts for load in loads(store.value)}
    if len(known) < len(parts) or any(id(store.tensor) in reads for store, _ in parts):
        return parts
    least = min((start for start, _ in known), default=0)
    ordered = sorted(zip(known, parts, numbers, strict=True), key=lambda each: -each[0][0])
    return [
        (store, _filled(place, *own, least) if number else place)
        for own, (store, place), number in ordered
    ]


def _rows(area: Area, row: Linear) -> Interval | None:
    """Return the partitions that a part writes, first and one after the last, if constant."""
    name = area.partition
    if name is None or row.of(name) != 1 or row.without(name).fixed != 0:
        return None
    start, stop = (each.fixed for each in area.box[name])
    return None if start is None or stop is None else (start, stop)


def _filled(place: Place, start: int, stop: int, least: int) -> Place:
    """Return a place from the last partition on at which instructions may start."""
    allowed = [
        first
        for first, most in LONGEST_FROM.items()
        if least <= first <= start and stop - first <= most
    ]
    name = str(place.area.partition)
    box = {**place.area.box, name: (Linear({}, max(allowed, default=start)), Linear({}, stop))}
    return replace(place, area=replace(place.area, box=box))


def _choice(value: Expression) -> Choose | None:
    if isinstance(value, Choose):
        return value
    found: list[Choose] = []

    def visit(part: Expression) -> Expression:
        inside = _choice(part)
        if inside is not None:
            found.append(inside)
        return part

    with_parts(value, visit)
    return found[0] if found else None


def replace_choice(value: Expression, old: Choose, new: Expression) -> Expression:
    """Return an expression with one choice decided, wherever it occurs."""
    if value == old:
        return new
    return with_parts(value, lambda part: replace_choice(part, old, new))
