"""Parts of tensors as kernels write them: slices where possible, access patterns elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .linear import Interval, Linear
from .program import Operand
from .refusals import EmitError

#: Start and end of each axis, by its name; the end is not included.
Box = Mapping[str, tuple[Linear, Linear]]


@dataclass(frozen=True)
class Area:
    """The loops that an instruction covers.

    - `partition`: the axis that counts partitions.
    - `free`: the others, in order.
    - `box`: where they run.
    """

    partition: str | None
    free: tuple[str, ...]
    box: Box

    @property
    def order(self) -> tuple[str, ...]:
        """All axes."""
        return ((self.partition,) if self.partition else ()) + self.free

    def size(self, name: str) -> Linear:
        """Return how many iterations of an axis are covered."""
        start, stop = self.box[name]
        return stop - start

    def kept(self, ranges: Mapping[str, Interval]) -> tuple[str, ...]:
        """Return the free axes with more than one iteration."""
        return tuple(n for n in self.free if self.size(n).bounds(ranges) != (1, 1))


def at_start(operand: Operand, area: Area, names: tuple[str, ...]) -> Operand:
    """Return an operand whose index has axes' first values in their place."""
    index = operand.index
    for name in names:
        index = tuple(each.put(name, area.box[name][0]) for each in index)
    return replace(operand, index=index)


def written(operand: Operand, area: Area, free: tuple[str, ...], block: str) -> str:
    """Write an operand with a partition dimension (on the chip) and some free axes.

    - `operand`: the access to write; axes that are not written must not be in its index.
    - `area`: where the axes run.
    - `free`: the free axes, in the order of the instruction; it is broadcast over those it does not
      use.
    - `block`: for messages.
    - Raises EmitError: the index runs backwards.
    """
    on_chip = operand.space != "hbm"
    if on_chip:
        operand, area = _partition(operand, area, free, block)
    if area.partition and not operand.uses(area.partition):
        # Of one row, as it was not refused above: HBM has no partitions.
        area = replace(area, partition=None) if area.size(area.partition).fixed == 1 else area
    names = ((area.partition,) if area.partition else ()) + free
    for each in operand.index:
        if any(each.of(name) < 0 for name in names):
            raise EmitError("not-affine", f"block '{block}'", f"'{operand.name}' runs backwards")
    found = [[name for name in names if each.of(name)] for each in operand.index]
    flat = [name for dim in found for name in dim]
    wanted = list(names)
    # One number for each partition: documents promise no more of a transfer than that both sides
    # have as many elements, so that the one of a vector in HBM has two dimensions, too.
    column = not on_chip and names == (area.partition,) and len(operand.shape) == 1
    column = column or any(each.picked for each in operand.index)
    if flat == wanted and all(len(dim) <= 1 for dim in found) and not column:
        return _slices(operand, area, found, on_chip, bool(free))
    return _pattern(operand, area, names, on_chip, block)


def _partition(
    operand: Operand, area: Area, free: tuple[str, ...], block: str
) -> tuple[Operand, Area]:
    """Make sure that the partitions of an operand are those of the area, if it has several."""
    counted = operand.index[0]
    subject = f"'{operand.name}' in block '{block}'"
    name = area.partition
    if name is not None and not counted.of(name):
        if area.size(name).fixed == 1:
            operand, area = at_start(operand, area, (name,)), replace(area, partition=None)
        elif not operand.uses(name):
            raise EmitError("broadcast", subject, "one partition of it is read by all")
        else:
            raise EmitError("layout", subject, f"its partitions are not counted by '{name}'")
    across = [each for each in free if counted.of(each)]
    if across:
        raise EmitError("layout", subject, f"its partitions are counted by '{across[0]}'")
    return operand, area


def _slices(operand: Operand, area: Area, found: list[list[str]], on_chip: bool, free: bool) -> str:
    parts: list[str] = []
    whole = True
    last = len(operand.index) - 1
    for dim, each in enumerate(operand.index):
        if found[dim]:
            name = found[dim][0]
            start, stop = area.box[name]
            step = each.of(name)
            low = each.put(name, start)
            high = each.put(name, stop if step == 1 else stop - 1) + (0 if step == 1 else 1)
            parts.append(sliced(low, high, step))
            whole &= step == 1 and low.fixed == 0 and high.fixed == operand.shape[dim]
        elif (on_chip and dim == 0) or (dim == last and not free and (on_chip or not any(found))):
            parts.append(sliced(each, each + 1, 1))
            whole &= operand.shape[dim] == 1
        else:
            parts.append(str(each))
            whole = False
    return operand.name if whole else f"{operand.name}[{', '.join(parts)}]"


def sliced(low: Linear, high: Linear, step: int = 1) -> str:
    """Write a slice."""
    start, stop = str(low), str(high)
    tail = f":{step}" if step > 1 else ""
    if start.isidentifier() | start.isdigit() and stop.isidentifier() | stop.isdigit():
        return f"{start}:{stop}{tail}"
    return f"{start} : {stop}" + (f" : {step}" if step > 1 else "")


def _pattern(
    operand: Operand, area: Area, names: tuple[str, ...], on_chip: bool, block: str
) -> str:
    strides = [math.prod(operand.shape[d + 1 :]) for d in range(len(operand.shape))]
    offset, picked = Linear(), ""
    for dim, (each, stride) in enumerate(zip(operand.index, strides, strict=True)):
        if each.picked is not None:
            # An index that is read of a table is all of an index, in one dimension only.
            if each != Linear({each.picked: 1}) or picked or on_chip:
                reason = f"'{operand.name}' is not read at one address of a table"
                raise EmitError("not-affine", f"block '{block}'", reason)
            picked = f", scalar_offset={each.picked}, indirect_dim={dim}"
            continue
        for name in names:
            each = each.put(name, area.box[name][0])
        offset = offset + each * stride
    pairs = []
    for name in names:
        stride = sum(each.of(name) * s for each, s in zip(operand.index, strides, strict=True))
        pairs.append(f"[{stride}, {area.size(name)}]")
    if on_chip and area.partition is None:
        pairs.insert(0, f"[{strides[0]}, 1]")
    if not on_chip and area.partition is not None and len(pairs) == 1:
        pairs.append("[1, 1]")
    return f"{operand.name}.ap([{', '.join(pairs)}], offset={offset}{picked})"
