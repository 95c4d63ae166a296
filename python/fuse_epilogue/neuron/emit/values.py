"""Reads what blocks compute: TIR's expressions over elements of buffers."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm.ir import Call, TensorLoad, prim

from .integers import Integers
from .linear import Linear
from .program import (
    FLOATS,
    MASKS,
    SMALL,
    WIDE,
    WIDE_MASK,
    Binary,
    Choose,
    Compare,
    Convert,
    Expression,
    Function,
    Load,
    Number,
    Rounded,
    Tensor,
    Where,
)
from .refusals import EmitError

_BINARY = {
    prim.Add: "add",
    prim.Sub: "subtract",
    prim.Mul: "multiply",
    prim.Div: "divide",
    prim.Max: "maximum",
    prim.Min: "minimum",
}
_COMPARISONS = {
    prim.LT: "less",
    prim.LE: "less_equal",
    prim.GT: "greater",
    prim.GE: "greater_equal",
    prim.EQ: "equal",
    prim.NE: "not_equal",
}
_PYTHON = {
    prim.LT: operator.lt,
    prim.LE: operator.le,
    prim.GT: operator.gt,
    prim.GE: operator.ge,
    prim.EQ: operator.eq,
    prim.NE: operator.ne,
}
#: Up to this number float32 has all integers.
_EXACT = 2**24
#: Divisors up to this one leave remainders whose products float32 has.
MOST_DIVISOR = 2**11
#: Of two comparisons, each 0 or 1.
_LOGIC = {prim.And: "multiply", prim.Or: "maximum"}
_FUNCTIONS = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "exp": "exp",
    "log": "log",
    "erf": "erf",
    "fabs": "abs",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
}


class Values:
    """Reads expressions.

    - `tensors` (dict[int, Tensor]): tensors of the buffers' variables, by handle.
    """

    def __init__(self, integers: Integers) -> None:
        self.integers = integers
        self.tensors: dict[int, Tensor] = {}

    def known(self, var: Any, block: str) -> Tensor:
        """Return the tensor of a buffer's variable."""
        found = self.tensors.get(var.__chandle__())
        if found is None:
            raise EmitError("statement", block, f"'{var.name}' is allocated nowhere")
        return found

    def expression(self, expr: Any, block: str) -> Expression:
        """Read what a block computes.

        - Raises EmitError: no instruction does that.
        """
        dtype = str(expr.ty.dtype)
        match expr:
            case prim.FloatImm() | prim.IntImm():
                return Number(expr.value, dtype)
            case TensorLoad():
                return self._load(expr, block)
            case prim.Cast():
                return self._cast(expr.value, dtype, block)
            case prim.Select():
                return self._choose(expr.condition, expr.true_value, expr.false_value, block)
            case Call():
                name = _name(expr)
                if name == "if_then_else":
                    return self._choose(expr.args[0], expr.args[1], expr.args[2], block)
                if name in _FUNCTIONS:
                    inside = self.expression(expr.args[0], block)
                    if name == "sqrt" and isinstance(inside, Number) and dtype == "float32":
                        # Correctly rounded everywhere, so it may be computed here.
                        return Number(float(np.sqrt(np.float32(inside.value))), dtype)
                    return Function(_FUNCTIONS[name], inside, dtype)
                if name == "pow":
                    base, exponent = (self.expression(arg, block) for arg in expr.args)
                    return _power(base, exponent, dtype)
                raise EmitError("expression", block, f"no instruction computes {name}")
        if type(expr) in _BINARY:
            a, b = self.expression(expr.a, block), self.expression(expr.b, block)
            return Binary(_BINARY[type(expr)], a, b, dtype)
        kind = type(expr).__name__
        raise EmitError("expression", block, f"no instruction computes {kind}, in '{expr}'")

    def _cast(self, inside: Any, dtype: str, block: str) -> Expression:
        """Read a conversion to another type."""
        own = str(inside.ty.dtype)
        if own == "bool":
            mask = self._mask(inside, block)
            if dtype == mask.dtype:
                return mask
            return Where(mask, Number(1.0, dtype), Number(0.0, dtype), dtype)
        if dtype in SMALL and isinstance(inside, Call) and _name(inside) == "nearbyint":
            return Rounded(self.expression(inside.args[0], block), dtype)
        clipped = _clipped(inside) if own in WIDE and dtype == "float32" else None
        if clipped is not None:
            # Rounding to float32 keeps the order, and changes nothing up to these bounds.
            load, low, high = clipped
            a = replace(self._load(load, block), exact=True)
            b = Binary("minimum", a, Number(high, dtype), dtype)
            return Binary("maximum", b, Number(low, dtype), dtype)
        if isinstance(inside, prim.FloorMod) and own == "int32" and dtype == "float32":
            return self._remainder(inside, block)
        made = self.expression(inside, block)
        if isinstance(made, Load) and own in SMALL and dtype == "float32":
            return replace(made, exact=True)
        return made if made.dtype == dtype else Convert(made, dtype)

    def _remainder(self, expr: Any, block: str) -> Expression:
        """Read the remainder of an integer that is not negative, as a float.

        The upper and the lower 16 bits are separate: float32 has everything that is computed.
        """
        by = int(expr.b) if isinstance(expr.b, prim.IntImm) else 0
        if not isinstance(expr.a, TensorLoad) or not 0 < by <= MOST_DIVISOR:
            raise EmitError("expression", block, f"no instruction computes '{expr}'")
        load = replace(self._load(expr.a, block), exact=True)
        high = Binary("right_shift", load, Number(16, "int32"), "int32")
        low = Binary("bitwise_and", load, Number(0xFFFF, "int32"), "int32")
        divisor = Number(float(by), "float32")
        upper = Binary("mod", high, divisor, "float32")
        upper = Binary("multiply", upper, Number(float(0x10000 % by), "float32"), "float32")
        return Binary("mod", Binary("add", upper, low, "float32"), divisor, "float32")

    def _load(self, expr: Any, block: str) -> Load:
        tensor = self.known(expr.source, block)
        index = tuple(self.integers.linear(each, block) for each in expr.indices)
        return Load(tensor, index or (Linear(),), tensor.dtype)

    def _choose(self, condition: Any, a: Any, b: Any, block: str) -> Expression:
        if loads(condition):
            return self._where(condition, a, b, block)
        if _alternatives(condition):
            match condition:
                case prim.NE():
                    return self._choose(prim.EQ(condition.a, condition.b), b, a, block)
                case prim.Not():
                    return self._choose(condition.a, b, a, block)
                case prim.Or():
                    return self._choose(condition.a, a, prim.Select(condition.b, a, b), block)
                case prim.And():
                    return self._choose(condition.a, prim.Select(condition.b, a, b), b, block)
        found = self.integers.conditions(condition, block)
        if found is None:
            return self.expression(b, block)
        yes, dtype = self.expression(a, block), str(a.ty.dtype)
        return Choose(tuple(found), yes, self.expression(b, block), dtype) if found else yes

    def _where(self, condition: Any, a: Any, b: Any, block: str) -> Expression:
        """Read a choice that data make."""
        if isinstance(condition, prim.And) and not (loads(condition.a) and loads(condition.b)):
            places, data = condition.a, condition.b
            if loads(places):
                places, data = data, places
            return self._choose(places, prim.Select(data, a, b), b, block)
        yes, no = self.expression(a, block), self.expression(b, block)
        return Where(self._mask(condition, block), yes, no, str(a.ty.dtype))

    def _mask(self, condition: Any, block: str) -> Expression:
        """Read a condition on data."""
        condition = _without_integers(condition)
        if isinstance(condition, prim.Not):
            return Compare("less", self._mask(condition.a, block), Number(0.5, "float32"))
        if type(condition) in _LOGIC:
            a, b = self._mask(condition.a, block), self._mask(condition.b, block)
            return Compare(_LOGIC[type(condition)], a, b)
        if type(condition) not in _COMPARISONS:
            raise EmitError("expression", block, f"no instruction computes '{condition}'")
        if isinstance(condition, prim.NE) and _is_stored(condition.a) and _is_zero(condition.b):
            return replace(self._load(condition.a, block), exact=True)
        a, b = self.expression(condition.a, block), self.expression(condition.b, block)
        if isinstance(a, Load) and isinstance(b, Load) and {a.dtype, b.dtype} <= WIDE:
            a, b = replace(a, exact=True), replace(b, exact=True)
            return Compare(_COMPARISONS[type(condition)], a, b, WIDE_MASK)
        if not {a.dtype, b.dtype} <= FLOATS:
            raise EmitError("dtype", block, f"compares {a.dtype} with {b.dtype}")
        return Compare(_COMPARISONS[type(condition)], a, b)


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", call.op)).split(".")[-1]


def _is_stored(expr: Any) -> bool:
    """Return whether an expression is an element of a buffer of comparisons."""
    return isinstance(expr, TensorLoad) and str(expr.ty.dtype) in MASKS


def _is_zero(expr: Any) -> bool:
    return isinstance(expr, prim.IntImm) and int(expr) == 0


def _power(base: Expression, exponent: Expression, dtype: str) -> Expression:
    """Return a power; a square is rounded once, as a product."""
    if not isinstance(exponent, Number) or exponent.value != 2:
        return Binary("power", base, exponent, dtype)
    if isinstance(base, Load):
        return Binary("multiply", base, base, dtype)
    return Function("square", base, dtype)


def _clipped(expr: Any) -> tuple[Any, int, int] | None:
    """Return (load, low, high) for ``max(min(load, high), low)``, of integers that float32 has."""
    bounds = []
    for kind in (prim.Max, prim.Min):
        if not isinstance(expr, kind) or not isinstance(expr.b, prim.IntImm):
            return None
        bounds.append(int(expr.b))
        expr = expr.a
    low, high = bounds
    within = -_EXACT <= low <= high <= _EXACT
    return (expr, low, high) if within and isinstance(expr, TensorLoad) else None


def _alternatives(condition: Any) -> bool:
    """Return whether a condition on indices is not a conjunction of comparisons."""
    match condition:
        case prim.NE() | prim.Or():
            return True
        case prim.Not():
            return isinstance(condition.a, (prim.EQ, prim.NE, prim.And, prim.Or, prim.Not))
        case prim.And():
            return _alternatives(condition.a) or _alternatives(condition.b)
    return False


def _without_integers(condition: Any) -> Any:
    """Return a condition for a comparison of one that was stored as an integer."""
    compare = _PYTHON.get(type(condition))
    if compare is None:
        return condition
    for stored, other, swapped in (
        (condition.a, condition.b, False),
        (condition.b, condition.a, True),
    ):
        while isinstance(stored, prim.Cast):
            stored = stored.value
        if str(stored.ty.dtype) != "bool" or not isinstance(other, prim.IntImm):
            continue
        number = int(other)
        no, yes = ((compare(number, x) if swapped else compare(x, number)) for x in (0, 1))
        if no != yes:
            return stored if yes else prim.Not(stored)
    return condition


def loads(expr: Any) -> list[Any]:
    """Return the loads in an expression of TIR."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return found
