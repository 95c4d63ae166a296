"""The computation of a block, in terms of tensors as they are in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..isa.arithmetic import combine, holds
from .layout import Layout
from .linear import Linear
from .program import (
    FLOATS,
    Binary,
    Convert,
    Expression,
    Load,
    Number,
    Operand,
    Program,
    Store,
    Tensor,
    with_parts,
)
from .refusals import EmitError

_IDENTITIES = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}


class Terms:
    """Makes operands of loads and stores.

    - `program`: for the ranges of the indices.
    - `layouts`: layouts of the buffers on the chip.
    """

    def __init__(self, program: Program, layouts: Mapping[int, Layout]) -> None:
        self.program = program
        self.layouts = layouts

    def operand(self, tensor: Tensor, index: tuple[Linear, ...], subject: str) -> Operand:
        """Return an element of a tensor as an operand.

        - Raises EmitError: the index does not go with the tensor's layout.
        """
        if tensor.space == "hbm":
            return Operand(tensor.name, "hbm", tensor.dtype, tensor.shape, index)
        layout = self.layouts[id(tensor)]
        placed = layout.index(tensor, index, self.program.ranges)
        if placed is None:
            raise EmitError(
                "layout", f"'{tensor.name}'", f"{subject} uses other partitions of it than the rest"
            )
        shape = layout.shape(tensor)
        return Operand(tensor.name, tensor.space, tensor.dtype, shape, placed)

    def term(self, value: Expression, subject: str) -> Expression:
        """Return an expression over operands.

        Conversions of an operand to float32 vanish: the engines read every type as float32.
        """
        if isinstance(value, Load):
            return replace(self.operand(value.tensor, value.index, subject), exact=value.exact)
        made = with_parts(value, lambda part: self.term(part, subject))
        if isinstance(made, Binary) and made.op in ("maximum", "minimum"):
            for one, other in ((made.a, made.b), (made.b, made.a)):
                if identity(made.op, one):
                    return other  # no constant of a kernel is infinite
        if isinstance(made, Binary) and made.dtype == "float32":
            a, b = made.a, made.b
            if isinstance(a, Number) and isinstance(b, Number):
                return Number(float(combine(made.op, a.value, b.value)), made.dtype)
        if isinstance(made, Convert):
            inside = made.a
            if isinstance(inside, Operand) and made.dtype == "float32" and inside.dtype in FLOATS:
                return inside
            if isinstance(inside, Number):
                return _converted(inside, made.dtype, subject)
        return made


def _converted(number: Number, dtype: str, subject: str) -> Number:
    """Return a constant as another type has it: integers are cut off, as in TIR."""
    if "int" not in dtype or "int" in number.dtype:
        return Number(number.value, dtype)
    if not math.isfinite(number.value) or not holds(dtype, math.trunc(number.value)):
        raise EmitError("expression", subject, f"{dtype} does not hold {number.value}")
    return Number(math.trunc(number.value), dtype)


def identity(op: str, value: Expression) -> bool:
    """Whether combining with a value changes nothing, up to the sign of zero."""
    if not isinstance(value, Number):
        return False
    # The least finite number, which TIR often starts a maximum with, is not neutral: -inf is less.
    return value.value == _IDENTITIES.get(op)


def merged(update: Store, init: Store) -> Store:
    """Return the first step of a sum: the init in place of what was there before."""

    def first(value: Expression) -> Expression:
        if (
            isinstance(value, Load)
            and value.tensor is update.tensor
            and value.index == update.index
        ):
            return init.value
        made = with_parts(value, first)
        if isinstance(made, Binary) and made.op in _IDENTITIES:
            for one, other in ((made.a, made.b), (made.b, made.a)):
                if identity(made.op, one):
                    return other
        return made

    return replace(update, value=first(update.value))
