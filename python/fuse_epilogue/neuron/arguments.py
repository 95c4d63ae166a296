"""Arguments of an instruction, checked by the kind of the parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import Refused
from .isa import ENGINES, ENUMERATIONS, OPERATIONS, Instruction, Parameter
from .language.attributes import describe
from .language.objects import Symbol, Unknown, unsupported
from .tile import Tile


def reachable(it: Instruction, name: str, tile: Tile) -> None:
    """Refuse operands in HBM."""
    if tile.access.partitions is None and not it.hbm:
        raise Refused("memory", f"{name} is in HBM, which only dma_copy reaches: copy it to SBUF")


@dataclass
class Taken:
    """Arguments of a call of an instruction, by what becomes of them.

    - `args`: of every parameter, with its default; without what the walk has no use for.
    - `written`, `read`: the tiles among them; those that are read with the parameter's name.
    - `constants`: what is neither a tile nor a default.
    """

    args: dict[str, Any] = field(default_factory=dict)
    written: list[Tile] = field(default_factory=list)
    read: list[tuple[str, Tile]] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)


def taken_of(it: Instruction, given: Mapping[str, Any]) -> Taken:
    """Return what a call gives an instruction, refused if it is not of the parameters' kinds."""
    taken = Taken()
    for parameter in it.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is not parameter.default:
            if parameter.kind == "any":
                continue
            value = _taken(it, parameter, value, taken)
        taken.args[parameter.name] = value
    return taken


def _taken(it: Instruction, parameter: Parameter, value: Any, taken: Taken) -> Any:
    """Note an argument that is not a default; returns it as the instruction takes it."""
    kind, name = parameter.kind, parameter.name
    if isinstance(value, Tile):
        if kind in ("dst", "result"):
            taken.written.append(value)
        elif kind in ("tile", "vector", "operand"):
            taken.read.append((name, value))
        else:
            raise Refused("language", f"{name} is not a tile")
        reachable(it, name, value)
        return value
    value = constant_of(it, parameter, value)
    if kind == "tiles":
        taken.read.extend((name, tile) for tile in value)
    elif kind == "results":
        taken.written.extend(value)
    elif value != parameter.default:
        taken.constants[name] = value
    return value


def engine_of(it: Instruction, value: Any, args: Mapping[str, Any]) -> str:
    """Return the engine that a kernel asks for, or else NKI's choice."""
    if value is None:
        return it.choose(args) if it.choose is not None else it.engines[0]
    name = value.name if isinstance(value, Symbol) and value.kind == "engine" else ""
    engine = ENGINES.get(name)
    if engine not in it.engines:
        raise Refused(
            "engine",
            f"nisa.{it.name} runs on the {' or '.join(it.engines)} engine, "
            f"not on {describe(value)}",
        )
    assert engine is not None
    return engine


def constant_of(it: Instruction, parameter: Parameter, value: Any) -> Any:
    """Return an argument that is not a tile, refused if it is not of the parameter's kind."""
    kind, name = parameter.kind, f"nisa.{it.name}: {parameter.name}"
    if kind in OPERATIONS:
        if value is None and parameter.default is None:
            return None
        if (
            not (isinstance(value, Symbol) and value.kind == "op")
            or value.name not in OPERATIONS[kind]
        ):
            names = ", ".join("nl." + it for it in OPERATIONS[kind])
            raise Refused("language", f"{name} must be one of {names}")
        return value.name
    if kind in ENUMERATIONS:
        if type(value) is int and 0 <= value < len(ENUMERATIONS[kind]):
            return ENUMERATIONS[kind][value]
        if not isinstance(value, Symbol) or value.kind != kind:
            raise Refused("language", f"{name} must be one of nisa.{kind}")
        return value.name
    if isinstance(value, Unknown):
        raise unsupported(value.name)
    test, what = _KINDS[kind]
    if not test(value):
        raise Refused("language", f"{name} is {what}")
    return tuple(value) if isinstance(value, list) else value


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _integers(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(type(n) is int for n in value)


def _pairs(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and bool(value)
        and all(_integers(pair) and len(pair) == 2 and pair[1] > 0 for pair in value)
    )


_KINDS: dict[str, tuple[Any, str]] = {
    "dst": (lambda value: False, "a tile"),
    "result": (lambda value: value is None, "a tile"),
    "tile": (lambda value: False, "a tile"),
    "tiles": (
        lambda value: isinstance(value, (tuple, list)) and all(isinstance(t, Tile) for t in value),
        "a list or a tuple of tiles",
    ),
    "vector": (_number, "a number"),
    "operand": (lambda value: value is None or _number(value), "a number"),
    "number": (_number, "a number"),
    "integer": (lambda value: type(value) is int, "an integer"),
    "results": (
        lambda value: isinstance(value, (tuple, list)) and all(isinstance(t, Tile) for t in value),
        "a list or a tuple of tiles",
    ),
    "flag": (lambda value: isinstance(value, bool), "True or False"),
    "axes": (
        lambda value: type(value) is int or _integers(value),
        "an axis or a tuple of axes",
    ),
    "pattern": (_pairs, "pairs of a step and a count"),
    "values": (
        lambda value: (
            value is None or (isinstance(value, (tuple, list)) and all(_number(n) for n in value))
        ),
        "a list or a tuple of numbers",
    ),
}


def accumulate_of(value: bool | None, dst: Tile) -> bool:
    """Decide what an omitted ``accumulate`` means: on what a matmul has written there, it adds."""
    if value is not None:
        return value
    for name, earlier in reversed(dst.buffer.written):
        if not dst.access.overlaps(earlier):
            continue
        if name in ("nc_matmul", "nc_matmul_mx") and earlier == dst.access:
            return True
        if name == "memset":
            return False
        raise Refused(
            "accumulate",
            "dst was written before, not by a matmul of the same place: say accumulate=True or "
            "False, such as accumulate=(k > 0)",
        )
    return False
