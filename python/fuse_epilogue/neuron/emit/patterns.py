"""Patterns of instructions: functions that fit an expression into an instruction's arguments.

Inside of an instruction everything is float32; a part that TIR rounds to another type does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from .program import COMMUTATIVE, WIDE, Binary, Expression, Function, Number, Operand
from .refusals import EmitError


@dataclass(frozen=True)
class Tile:
    """An operand with an element for each of the result's."""

    operand: Operand


@dataclass(frozen=True)
class Column:
    """An operand with one value for each partition."""

    operand: Operand


#: Argument of an instruction: a tile, a column, or text.
Argument: TypeAlias = Tile | Column | str
#: Arguments by parameter; an empty name is one given by position.
Arguments: TypeAlias = tuple[tuple[str, Argument], ...]


@dataclass(frozen=True)
class Site:
    """Place at which an expression is computed.

    - `free`: the axes along a partition.
    - `space`: memory of the result.
    - `engine`: which engine is wanted.
    """

    free: tuple[str, ...]
    space: str
    engine: str | None

    def column(self, term: Expression) -> Operand | None:
        """Return an operand that has one value for each partition."""
        if isinstance(term, Operand) and not any(term.uses(name) for name in self.free):
            return term
        return None

    def scalar(self, term: Expression) -> Argument | None:
        """Return a constant or a column as an argument."""
        if isinstance(term, Number):
            return str(int(term.value)) if "int" in term.dtype else number(term.value)
        column = self.column(term)
        if column is None or column.space == "psum" or column.dtype in WIDE:
            return None
        return Column(column)


def number(value: float) -> str:
    """Write a constant; NKI has no word for those that are not finite."""
    if not math.isfinite(value):
        raise EmitError("expression", f"the constant {value}", "cannot be written in a kernel")
    return repr(float(value))


def _zero(term: Expression) -> bool:
    return isinstance(term, Number) and term.value == 0


def inner(term: Expression) -> bool:
    """Whether a part may stay inside of an instruction, where everything is float32."""
    return isinstance(term, (Binary, Function)) and term.dtype == "float32"


def _sides(
    term: Expression, op: str | None = None
) -> Iterable[tuple[Expression, Expression, bool]]:
    """Yield (data, other, reversed) for both ways to read a binary operation."""
    if isinstance(term, Binary) and (op is None or term.op == op):
        yield term.a, term.b, False
        yield term.b, term.a, term.op not in COMMUTATIVE


def _flag(name: str, value: bool) -> Arguments:
    return ((name, "True"),) if value else ()


def memset(term: Expression, site: Site) -> Arguments | None:
    """Fit ``s``."""
    if not isinstance(term, Number):
        return None
    return (("", str(int(term.value)) if "int" in term.dtype else number(term.value)),)


def copy(term: Expression, site: Site) -> Arguments | None:
    """Fit ``t``."""
    return (("", Tile(term)),) if isinstance(term, Operand) else None


def tensor_scalar(term: Expression, site: Site) -> Arguments | None:
    """Fit ``t op s``, or ``(t op s) op r``."""
    for data, other, backwards in _sides(term):
        scalar = site.scalar(other)
        if scalar is None:
            continue
        assert isinstance(term, Binary)
        if isinstance(data, Operand):
            return (
                ("", Tile(data)),
                ("", f"nl.{term.op}"),
                ("", scalar),
                *_flag("reverse0", backwards),
            )
        if not inner(data):
            continue
        for tile, first, reverse in _sides(data):
            operand0 = site.scalar(first)
            if isinstance(tile, Operand) and operand0 is not None:
                assert isinstance(data, Binary)
                return (
                    ("", Tile(tile)),
                    ("", f"nl.{data.op}"),
                    ("", operand0),
                    *_flag("reverse0", reverse),
                    ("op1", f"nl.{term.op}"),
                    ("operand1", scalar),
                    *_flag("reverse1", backwards),
                )
    return None


def scalar_tensor_tensor(term: Expression, site: Site) -> Arguments | None:
    """Fit ``(t op s) op u``."""
    for data, other, backwards in _sides(term):
        if not isinstance(other, Operand) or not inner(data):
            continue
        for tile, scalar, reverse in _sides(data):
            operand0 = site.scalar(scalar)
            if not isinstance(tile, Operand) or operand0 is None or _both_psum(tile, other):
                continue
            assert isinstance(term, Binary)
            assert isinstance(data, Binary)
            return (
                ("", Tile(tile)),
                ("", f"nl.{data.op}"),
                ("", operand0),
                ("", f"nl.{term.op}"),
                ("", Tile(other)),
                *_flag("reverse0", reverse),
                *_flag("reverse1", backwards),
            )
    return None


def tensor_tensor(term: Expression, site: Site) -> Arguments | None:
    """Fit ``t op u``."""
    if not isinstance(term, Binary):
        return None
    if not isinstance(term.a, Operand) or not isinstance(term.b, Operand):
        return None
    if _both_psum(term.a, term.b):
        return None
    return (("", Tile(term.a)), ("", Tile(term.b)), ("", f"nl.{term.op}"))


def _both_psum(a: Operand, b: Operand) -> bool:
    return a.space == b.space == "psum"


def _scaled(term: Expression, site: Site) -> Arguments | None:
    """Return the arguments for ``t * s + b``, ``t * s``, ``t + b`` or ``t``."""
    if isinstance(term, Operand):
        return None if term.dtype in WIDE else (("", Tile(term)),)
    for data, other, _ in _sides(term, "add"):
        bias = site.column(other)
        if bias is None or bias.space == "psum" or not (isinstance(data, Operand) or inner(data)):
            continue
        if isinstance(data, Operand):
            return (("", Tile(data)), ("bias", Column(bias)))
        for tile, factor, _ in _sides(data, "multiply"):
            scale = site.scalar(factor)
            if isinstance(tile, Operand) and scale is not None:
                return (("", Tile(tile)), ("bias", Column(bias)), ("scale", scale))
    for tile, factor, _ in _sides(term, "multiply"):
        scale = site.scalar(factor)
        if isinstance(tile, Operand) and scale is not None:
            return (("", Tile(tile)), ("scale", scale))
    return None


def activation(term: Expression, site: Site) -> Arguments | None:
    """Fit ``f(t * s + b)``, ReLU and SiLU among the functions."""
    function, inside = "copy", term
    if isinstance(term, Function):
        function, inside = term.op, term.a
    elif isinstance(term, Binary) and term.op == "maximum" and (_zero(term.a) or _zero(term.b)):
        function, inside = "relu", term.b if _zero(term.a) else term.a
    else:
        for tile, gate, _ in _sides(term, "multiply"):
            if gate == Function("sigmoid", tile, "float32"):
                function, inside = "silu", tile
    if inside is not term and not isinstance(inside, Operand) and not inner(inside):
        return None
    scaled = _scaled(inside, site)
    return None if scaled is None else (("", f"nl.{function}"), *scaled)
