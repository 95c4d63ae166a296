"""Operations on data as source that works on scalars of the machine, or on float64 throughout."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import functions, scalars
from .integers import clamp, integer_operation, without_overflow, wrap
from .scalars import ScalarType, UnsupportedError, scalar_type
from .values import Buffer, Value

_BOOL = scalar_type("bool")
_NARROW: dict[str, type] = {"float16": np.float16, "float32": np.float32, "bfloat16": np.float32}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}

#: What generated source may refer to by name.
RUNTIME: dict[str, Any] = {
    name: getattr(scalars, name)
    for name in (
        "POISON",
        "maximum",
        "minimum",
        "select",
        "ordered_not_equal",
        "truncdiv",
        "truncmod",
        "checked_div",
        "checked_truncmod",
        "checked_floordiv",
        "checked_floormod",
        "in_range",
        "divide64",
        "float_remainder",
        "shift_amount",
        "index",
        "bool_to_int",
        "to_bool",
        "to_float16",
        "to_float32",
        "to_float64",
        "wide_to_float32",
        "wide_to_float16",
        "round_bfloat16",
        "float_to_int",
        "reinterpret",
    )
}
RUNTIME["q_multiply_shift"] = functions.q_multiply_shift


def _name_functions() -> dict[tuple[str, bool | str], str]:
    """Bind every function in every width; returns their names in `RUNTIME`."""
    names: dict[tuple[str, bool | str], str] = {}
    for function in functions.FLOAT_FUNCTIONS:
        for suffix, narrow in (("16", np.float16), ("32", np.float32), ("64", None)):
            name = f"{function}_{suffix}"
            RUNTIME[name] = functions.float_function(function, narrow)
            names[function, suffix] = name
    return names


_FUNCTIONS = _name_functions()


class MachineDialect:
    """Source on scalars.

    - `constants` (dict[str, Any]): where floating literals go; part of the namespace the source
      runs in.
    - `exact`: False: every operation rounds as the machine does. True: floats of all widths are
      computed in float64, the reference for error bounds.
    - `checked`: whether an overflow that LLVM takes for impossible is an error; otherwise it wraps.
    """

    def __init__(
        self, constants: dict[str, Any], exact: bool = False, checked: bool = False
    ) -> None:
        self.constants = constants
        self.exact = exact
        self.checked = checked
        self._literals: dict[tuple[str, str], str] = {}

    def suffix(self, type: ScalarType) -> str:
        """Return the width that floats of a type are computed in."""
        if self.exact or type.name == "float64":
            return "64"
        return "16" if type.name == "float16" else "32"

    def literal(self, value: float, type: ScalarType) -> Value:
        """Return a literal; it is rounded to its type in the reference too."""
        key = (type.name, repr(value))
        name = self._literals.get(key)
        if name is None:
            name = self._literals[key] = f"c{len(self._literals)}"
            narrow = _NARROW.get(type.name)
            rounded: Any = value if narrow is None else narrow(value)
            self.constants[name] = float(rounded) if self.exact else rounded
        return Value(name, type)

    def lift(self, value: Value) -> Value:
        """Return the same source: integers are Python integers here too."""
        return Value(value.code, value.type, False, value.low, value.high)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Return an operation on two values of one type."""
        if a.type.kind != "f":
            code, low, high = integer_operation(name, a, b)
            if a.type.kind == "b":
                return Value(code, a.type)
            if self.checked:
                code = without_overflow(name, code, a.type)
            return Value(wrap(code, a.type, low, high), a.type, False, *clamp(a.type, low, high))
        if name in _OPERATORS:
            return Value(f"({a.code} {_OPERATORS[name]} {b.code})", a.type)
        if name == "div":
            wide = self.suffix(a.type) == "64"
            code = f"divide64({a.code}, {b.code})" if wide else f"({a.code} / {b.code})"
            return Value(code, a.type)
        if name in ("max", "min"):
            return Value(f"{name}imum({a.code}, {b.code})", a.type)
        if name == "truncmod":
            return Value(f"float_remainder({a.code}, {b.code})", a.type)
        raise UnsupportedError(f"{name} of {a.type.name}")

    def compare(self, name: str, a: Value, b: Value) -> Value:
        """Return a comparison; those of floats are ordered."""
        if name == "ne":
            if a.type.kind == "f":
                return Value(f"ordered_not_equal({a.code}, {b.code})", _BOOL)
            return Value(f"({a.code} != {b.code})", _BOOL)
        return Value(f"({a.code} {_COMPARISONS[name]} {b.code})", _BOOL)

    def logical(self, name: str, operands: list[Value]) -> Value:
        """Return and, or, not: both operands are computed."""
        if name == "not":
            return Value(f"({operands[0].code} ^ True)", _BOOL)
        sign = "&" if name == "and" else "|"
        return Value(f"({operands[0].code} {sign} {operands[1].code})", _BOOL)

    def bitwise_not(self, a: Value) -> Value:
        """Return the complement of an integer or a bool."""
        if a.type.kind == "b":
            return Value(f"({a.code} ^ True)", a.type)
        return Value(wrap(f"(~{a.code})", a.type, ~a.high, ~a.low), a.type)

    def cast(self, a: Value, target: ScalarType) -> Value:
        """Return a conversion."""
        if target.kind == "b":
            return Value(f"to_bool({a.code})", target)
        if target.kind in "iu":
            if a.type.kind == "f":
                return Value(f"float_to_int({a.code}, {target.bits}, {target.kind == 'i'})", target)
            code = f"bool_to_int({a.code})" if a.type.kind == "b" else a.code
            low, high = clamp(target, a.low, a.high)
            return Value(wrap(code, target, a.low, a.high), target, False, low, high)
        suffix = self.suffix(target)
        if a.type.kind == "f" and suffix == self.suffix(a.type):
            return Value(a.code, target)
        if a.type.kind in "iu" and a.type.bits == 64 and suffix != "64":
            return Value(f"wide_to_float{suffix}({a.code})", target)
        return Value(f"to_float{suffix}({a.code})", target)

    def decides(self, condition: Value, lazy: bool) -> bool:
        """Return `lazy`."""
        return lazy

    def choose(self, condition: Value, a: Value, b: Value, lazy: bool) -> Value:
        """Return a selection."""
        if lazy:
            code = f"({a.code} if {condition.code} else {b.code})"
        else:
            code = f"select({condition.code}, {a.code}, {b.code})"
        return Value(code, a.type, False, min(a.low, b.low), max(a.high, b.high))

    def call(self, name: str, args: list[Value], type: ScalarType) -> Value:
        """Return a call of a pure function."""
        codes = ", ".join(arg.code for arg in args)
        if name == "q_multiply_shift":
            return Value(f"q_multiply_shift({codes})", type)
        if name == "isnan" and args[0].type.kind == "f":
            # Written with operators, so that poison is handed on.
            return Value(f"(({codes} == {codes}) ^ True)", type)
        if name == "reinterpret" and args[0].type.bits == type.bits and not self.exact:
            return Value(f"reinterpret({codes}, '{args[0].type.name}', '{type.name}')", type)
        function = _FUNCTIONS.get((name, self.suffix(type)))
        if type.kind != "f" or function is None:
            raise UnsupportedError(f"a call of {name} giving {type.name} cannot be evaluated")
        return Value(f"{function}({codes})", type)

    def load(self, buffer: Buffer, indices: list[Value], keys: list[int]) -> Value:
        """Return an element."""
        return Value(f"{buffer.code}[{offset(buffer, indices, keys)}]", buffer.type)


def offset(buffer: Buffer, indices: list[Value], keys: list[int]) -> str:
    """Write where an element lies in its list; indices not known to be in bounds are checked."""
    parts = []
    for axis, (value, key) in enumerate(zip(indices, keys, strict=True)):
        extent = buffer.shape[axis]
        inside = value.low >= 0 and value.high < extent.low
        code = value.code
        if not (inside or (key and key == buffer.keys[axis])):
            code = f"index({code}, {extent.code}, {buffer.name!r}, {axis})"
        if buffer.source is not None:
            assert buffer.offsets is not None
            parts.append(Value(f"({buffer.offsets[axis].code} + {code})", value.type, True))
        else:
            stride = buffer.strides[axis]
            parts.append(Value(code if stride == "1" else f"{code}*{stride}", value.type, True))
    if buffer.source is not None:
        return offset(buffer.source, parts, [0] * len(parts))
    return " + ".join(part.code for part in parts) or "0"
