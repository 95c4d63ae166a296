"""Registers, and loops that the machine counts: their bounds and conditions may be data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Refused
from ..isa import COLLECTIVES, INSTRUCTIONS
from ..tile import Register, Tile
from .builtins import integer, make_range
from .objects import Builtin, unsupported

if TYPE_CHECKING:
    from ..walk import Walk


def _allocate(walk: Walk, x: Any = None) -> Register:
    """Return a register, with a number or what a tile holds."""
    made = Register(None)
    if isinstance(x, Tile):
        _load(walk, made, x)
    elif x is not None:
        made.value = integer(x)
    return made


def _load(walk: Walk, dst: Any, src: Any) -> None:
    if not isinstance(dst, Register) or not isinstance(src, Tile):
        raise Refused("language", "register_load takes a register and a tile of one element")
    if math.prod(src.shape) != 1 or "int" not in src.dtype:
        raise Refused("shapes", f"a register takes one integer, not {src.shape} {src.dtype}")
    dst.value = walk.number(src)


def _move(walk: Walk, dst: Any, src: Any) -> None:
    if not isinstance(dst, Register):
        raise Refused("language", "register_move takes a register, and an integer or another one")
    dst.value = src.value if isinstance(src, Register) else integer(src)


def _store(walk: Walk, dst: Any, src: Any) -> None:
    if not isinstance(dst, Tile) or not isinstance(src, Register):
        raise Refused("language", "register_store takes a tile of one element and a register")
    if math.prod(dst.shape) != 1 or "int" not in dst.dtype:
        raise Refused("shapes", f"a register holds one integer, dst is {dst.shape} {dst.dtype}")
    if src.value is None and walk.execute:
        raise Refused("uninitialised", "register_store reads a register that was never written")
    # As if a constant were written: what it costs is not documented.
    walk.instruction(INSTRUCTIONS["memset"], [], {"dst": dst, "value": src.value or 0})


def _scalar_load(walk: Walk, src: Any) -> Register:
    """Return a scalar with what a tile holds."""
    made = Register(None)
    _load(walk, made, src)
    return made


def of_registers(combine: Callable[[Any, Any], Any], a: Any, b: Any) -> Register:
    """Return the sum, difference or product of scalars in 32 bits, which wraps.

    Source: ``nki.isa.NkiScalar`` of the AWS Neuron documentation.
    """
    values = [each.value if isinstance(each, Register) else integer(each) for each in (a, b)]
    if combine not in (operator.add, operator.sub, operator.mul):
        raise Refused("language", "scalars are added, subtracted and multiplied")
    if None in values:
        return Register(None)
    return Register((combine(*values) + 2**31) % 2**32 - 2**31)


def dynamic_range(walk: Walk, *bounds: Any, **named: Any) -> range:
    """Return the range of a loop whose bounds data may say: if nothing is executed, one of it."""
    values = [*bounds, *named.values()]
    first = values[0] if len(values) > 1 else 0
    start = first.value if isinstance(first, Register) else first
    numbers = [it.value if isinstance(it, Register) else integer(it) for it in values]
    if any(number is None for number in numbers):
        start = integer(start) if start is not None else 0
        return range(start, start + 1)
    return make_range(*numbers)


def _fori_loop(walk: Walk, lower: Any, upper: Any, body_fun: Any, step: Any = 1) -> None:
    from .calls import call

    for at in dynamic_range(walk, lower, upper, step):
        walk.count(1)
        call(walk, body_fun, [Register(at)], {})


def _while_loop(walk: Walk, init: Any, body_fun: Any) -> None:
    """Repeat until the register that the body returns is zero: once if nothing is executed."""
    from .calls import call

    held = init
    while isinstance(held, Register) and held.value != 0:
        known = held.value is not None
        walk.count(1)
        held = call(walk, body_fun, [Register(held.value)], {})
        if not known:
            return
    if not isinstance(held, Register):
        raise Refused("language", "nl.while_loop takes a register, and its body returns one")


def rank(walk: Walk) -> Register:
    """Return the number of the machine, which nothing here knows."""
    if walk.execute:
        raise unsupported("nki.collectives.rank_id in an execution")
    return Register(None)


def source(walk: Walk, **named: Any) -> Register:
    """Return the number of the machine whose data are there, which nothing here knows."""
    return rank(walk)


def permute(walk: Walk, srcs_by_channel: Any, dsts_by_channel: Any, **named: Any) -> None:
    """Exchange the tensors of all channels with other machines."""
    srcs = [tile for channel in srcs_by_channel for tile in channel]
    dsts = [tile for channel in dsts_by_channel for tile in channel]
    walk.instruction(
        COLLECTIVES["all_to_all"],
        [],
        {"srcs": srcs, "dsts": dsts, "replica_group": named.get("replica_group")},
    )


#: Functions of ``nisa``, by name.
REGISTERS = {
    "register_alloc": Builtin("nisa.register_alloc", _allocate),
    "register_load": Builtin("nisa.register_load", _load),
    "register_move": Builtin("nisa.register_move", _move),
    "register_store": Builtin("nisa.register_store", _store),
    "scalar_load": Builtin("nisa.scalar_load", _scalar_load),
    "scalar_store": Builtin("nisa.scalar_store", _store),
}
#: Loops of ``nl``, by name.
LOOPS = {
    "dynamic_range": Builtin("nl.dynamic_range", dynamic_range),
    "fori_loop": Builtin("nl.fori_loop", _fori_loop),
    "while_loop": Builtin("nl.while_loop", _while_loop),
}
