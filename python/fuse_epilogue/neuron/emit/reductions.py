"""Finds reductions of what the block before stores: one instruction may do both.

    e[p, f] = exp(x[p, f] + b[p])      and      t[p] = sum(e[p, f] for all f)

What is reduced is what the engine computes, before it is rounded: so it is the stored elements in
float32, or the same expression without their conversion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .linear import Linear
from .program import (
    Binary,
    Choose,
    Convert,
    Expression,
    Leaf,
    Load,
    Operand,
    loads,
    stores,
    with_parts,
)
from .terms import identity


@dataclass(frozen=True)
class Reduced:
    """A reduction along partitions of everything that an instruction computes.

    - `op`: name of the operation.
    - `target`: a value for each partition.
    """

    op: str
    target: Operand


@dataclass(frozen=True)
class Total:
    """A block that reduces what the block before stores, over the axes of that.

    - `op`: name of the operation.
    - `load`: an element of its result.
    """

    op: str
    load: Load


def total_of(leaf: Leaf, after: Leaf) -> Total | None:
    """Return how a block reduces everything that the block before it stores, None if it does not.

    - `leaf`: a block that assigns, its axes known.
    - `after`: the block after it.
    """
    if leaf.init is not None or after.engine is not None or leaf.late or after.late:
        return None
    if not _same_axes(leaf, after) or after.init is None:
        return None
    value = after.update.value
    if not isinstance(value, Binary) or not identity(value.op, after.init.value):
        return None
    table = {b.name: a.name for a, b in zip(leaf.axes, after.axes, strict=True)}
    index = tuple(_renamed(each, table) for each in after.update.index)
    along = {axis.name for axis in leaf.axes if axis.role == "F"}
    held = set(leaf.update.conditions)
    if any(each.of(name) for each in (*index, *held) for name in along):
        return None
    if any({_renamed(c, table) for c in s.conditions} != held for s in stores(after)):
        return None
    if not set(after.first) <= {name for name, own in table.items() if own in along}:
        return None
    total = Load(after.update.tensor, index, after.update.tensor.dtype)
    a, b = (_over(part, table) for part in (value.a, value.b))
    inside = b if a == total else a if b == total else None
    if inside is None or total.tensor.dtype != "float32":
        return None
    if any(load.tensor is total.tensor for load in loads(leaf.update.value)):
        return None
    return Total(value.op, total) if _is_computed(inside, leaf) else None


def _same_axes(leaf: Leaf, after: Leaf) -> bool:
    """Whether two blocks go over partitions and along them in the same way, in no other loops."""
    for each in (leaf, after):
        roles = [axis.role for axis in each.axes]
        if roles[:1] != ["P"] or set(roles[1:]) != {"F"}:
            return False
        if {name for name, _ in each.own} - {axis.name for axis in each.axes}:
            return False
    return [a.extent for a in leaf.axes] == [a.extent for a in after.axes]


def _is_computed(value: Expression, leaf: Leaf) -> bool:
    """Whether a value is what a block computes, not rounded."""
    update = leaf.update
    if value == Load(update.tensor, update.index, "float32"):
        return True
    computed = update.value
    if isinstance(computed, Convert):
        computed = computed.a
    return computed.dtype == "float32" and value == computed


def _renamed(index: Linear, table: dict[str, str]) -> Linear:
    return Linear({table.get(k, k): value for k, value in index.terms.items()}, index.constant)


def _over(value: Expression, table: dict[str, str]) -> Expression:
    """Return an expression over other axes."""
    if isinstance(value, Load):
        return replace(value, index=tuple(_renamed(each, table) for each in value.index))
    made = with_parts(value, lambda part: _over(part, table))
    if isinstance(made, Choose):
        made = replace(made, conditions=tuple(_renamed(c, table) for c in made.conditions))
    return made
