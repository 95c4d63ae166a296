"""Ranges of the integers of a model, as far as its operators say them.

An end of a range is a number, an expression of symbolic sizes, or None where it is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, sym, tirx
from tvm.ir import GenericConst
from tvm.relax import Call

from ...tir.walk import handle, operator_name
from .rewriting import known_shape

#: The smallest and the largest value.
Range = tuple[Any, Any]

_UNKNOWN: Range = (None, None)
#: Operators whose results are some of the values of their first operand.
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "broadcast_to", "expand_dims", "squeeze", "permute_dims", "flatten"),
        *("strided_slice", "dynamic_strided_slice", "take", "gather_elements", "gather_nd"),
        *("tile", "repeat", "flip"),
    )
)
#: Operators with places along an axis as results, and the smallest one. TVM's argmax begins at -1,
#: and stays there if no element is above the smallest number, as of a row of -inf.
_PLACES = {"relax.argmax": -1, "relax.argmin": -1, "relax.argsort": 0}


class Ranges:
    """Ranges of expressions, by the bindings that were added."""

    def __init__(self) -> None:
        """Begin without any binding."""
        self._values: dict[int, Any] = {}
        self._known: dict[int, Range] = {}

    def bind(self, var: Any, value: Any) -> None:
        """Add a binding."""
        self._values[handle(var)] = value

    def value(self, expr: Any) -> Any:
        """Return what a variable is bound to, None for a parameter; other expressions as is."""
        while isinstance(expr, relax.Var):
            expr = self._values.get(handle(expr))
        return expr

    def origins(self, expr: Any) -> set[int]:
        """Return the handles of the variables that an expression is computed from, and its own."""
        todo, found = [expr], set()
        while todo:
            for var in relax.analysis.free_vars(todo.pop()):
                if handle(var) not in found:
                    found.add(handle(var))
                    todo += [
                        value for value in [self._values.get(handle(var))] if value is not None
                    ]
        return found

    def of(self, expr: Any) -> Range:
        """Return the range of a tensor of integers."""
        if not isinstance(expr, relax.Var):
            return self._of(expr)
        if handle(expr) not in self._known:
            low, high = self._of(self.value(expr))
            least, most = _of_type(expr)
            # What leaves its type wraps.
            outside = isinstance(low, int) and least is not None and low < least
            outside |= isinstance(high, int) and most is not None and high > most
            if outside or most == 1 or (least == 0 and not known(low)):
                low, high = (least, most) if least == 0 else _UNKNOWN
            self._known[handle(expr)] = low, high
        return self._known[handle(expr)]

    def number(self, expr: Any) -> Any:
        """Return the number that a tensor is all of, maybe symbolic; None if it is not known."""
        low, high = self.of(expr)
        return low if known(low, high) and proved(low == high) else None

    def numbers(self, expr: Any) -> list[Any] | None:
        """Return the numbers of a constant vector, or the one that a tensor is all of."""
        value = self.value(expr)
        if isinstance(value, GenericConst) and len(value.value.shape) == 1:
            return [int(each) for each in value.value.numpy()]
        number = self.number(expr)
        return None if number is None else [number]

    def _of(self, value: Any) -> Range:
        if isinstance(value, GenericConst):
            array = value.value.numpy()
            whole = array.dtype.kind in "iub" and array.size
            return (int(array.min()), int(array.max())) if whole else _UNKNOWN
        if isinstance(value, relax.TupleGetItem):
            return self._of_item(self.value(value.tuple_value), int(value.index))
        if not isinstance(value, Call):
            return _UNKNOWN
        name = operator_name(value)
        if name in _MOVES:
            return self.of(value.args[0])
        if name in _PLACES:
            return _PLACES[name], _last(value.args[0], value.attrs.axis)
        rule = _RULES.get(name)
        return _UNKNOWN if rule is None else rule(self, value)

    def _of_item(self, value: Any, index: int) -> Range:
        if operator_name(value) == "relax.topk" and index == 1:
            return 0, _last(value.args[0], value.attrs.axis)
        if operator_name(value) == "relax.split":
            return self.of(value.args[0])
        return _UNKNOWN


def proved(condition: Any) -> bool:
    """Whether a condition of numbers and sizes holds for certain."""
    return condition if isinstance(condition, bool) else bool(sym.Analyzer().can_prove(condition))


def known(*ends: Any) -> bool:
    """Whether all ends of ranges are known."""
    return all(end is not None for end in ends)


def as_number(value: Any) -> Any:
    """Return a scalar of Relax as a number or an expression; None if it is not finite."""
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.FloatImm):
        number = float(value)
        return int(number) if number.is_integer() else None
    return value


def _of_type(expr: Any) -> Range:
    """Return the range of the type of a tensor."""
    dtype = getattr(expr.ty, "dtype", None)
    name = str(getattr(dtype, "dtype", dtype))
    if name == "bool":
        return 0, 1
    if not name.startswith(("int", "uint")):
        return _UNKNOWN
    info = np.iinfo(name)
    return int(info.min), int(info.max)


def _last(tensor: Any, axis: Any) -> Any:
    """Return the last place along an axis, or of all elements if that is None."""
    sizes = known_shape(tensor)
    if sizes is None:
        return None
    count: Any = 1
    for size in sizes if axis is None else [sizes[int(axis) % len(sizes)]]:
        count = count * as_number(size)
    return count - 1


def _arange(_: Ranges, call: Any) -> Range:
    start, stop, step = map(as_number, call.args[:3])
    if not isinstance(step, int) or not known(start, stop):
        return _UNKNOWN
    return (start, stop - 1) if step > 0 else (stop + 1, start)


def _clip(ranges: Ranges, call: Any) -> Range:
    low, high = ranges.of(call.args[0])
    least, most = map(as_number, call.args[1:3])
    low = least if low is None else low if least is None else _most([low, least])
    high = most if high is None else high if most is None else _least([high, most])
    if not known(low, high):
        return low, high
    # A value beyond one end is at this end.
    return _least([low, high]), _most([low, high])


def _where(ranges: Ranges, call: Any) -> Range:
    added = counted_from_end(ranges, call)
    if added is not None:
        low, high = ranges.of(call.args[2])
        if low is not None and proved(low >= 0):
            return low, high
        size = ranges.number(added)
        if not known(low, high, size):
            return _UNKNOWN
        return _least([low + size, 0]), _most([high, size - 1])
    return _joined([ranges.of(each) for each in call.args[1:3]])


def counted_from_end(ranges: Ranges, call: Any) -> Any:
    """Return the size in ``where(i < 0, i + size, i)``, None for another call."""
    test, other = (ranges.value(each) for each in call.args[:2])
    if operator_name(test) != "relax.less" or operator_name(other) != "relax.add":
        return None
    index = call.args[2]
    zero = ranges.number(test.args[1])
    same = all(each.same_as(index) for each in (test.args[0], other.args[0]))
    return other.args[1] if same and isinstance(zero, int) and zero == 0 else None


def _joined(ranges: Sequence[Range]) -> Range:
    lows, highs = zip(*ranges, strict=True)
    return (
        _least(lows) if known(*lows) else None,
        _most(highs) if known(*highs) else None,
    )


def _concat(ranges: Ranges, call: Any) -> Range:
    parts = ranges.value(call.args[0])
    if not isinstance(parts, relax.Tuple):
        return _UNKNOWN
    return _joined([ranges.of(each) for each in parts.fields])


def _add(ranges: Ranges, call: Any) -> Range:
    (low, high), (least, most) = map(ranges.of, call.args)
    return (
        low + least if known(low, least) else None,
        high + most if known(high, most) else None,
    )


def _subtract(ranges: Ranges, call: Any) -> Range:
    (low, high), (least, most) = map(ranges.of, call.args)
    return (
        low - most if known(low, most) else None,
        high - least if known(high, least) else None,
    )


def _multiply(ranges: Ranges, call: Any) -> Range:
    ends = [end for each in call.args for end in ranges.of(each)]
    if not known(*ends) or not all(proved(end >= 0) for end in ends):
        return _UNKNOWN
    return ends[0] * ends[2], ends[1] * ends[3]


def _extreme(pick: Callable[[Sequence[Any]], Any], which: int) -> Callable[[Ranges, Any], Range]:
    """Return the rule of a minimum or maximum, which is beyond one end of neither operand."""

    def rule(ranges: Ranges, call: Any) -> Range:
        found = list(_joined([ranges.of(each) for each in call.args]))
        ends = [ranges.of(each)[which] for each in call.args]
        known = [end for end in ends if end is not None]
        found[which] = pick(known) if known else None
        return found[0], found[1]

    return rule


def _remainder(ranges: Ranges, call: Any) -> Range:
    divisor, (low, _) = ranges.number(call.args[1]), ranges.of(call.args[0])
    if divisor is None or not proved(divisor >= 1):
        return _UNKNOWN
    floors = operator_name(call) == "relax.floor_mod" or (low is not None and proved(low >= 0))
    return (0 if floors else 1 - divisor), divisor - 1


def _astype(ranges: Ranges, call: Any) -> Range:
    if "float" in str(call.args[0].ty.dtype):
        return _UNKNOWN  # a NaN is in no range, and becomes any number
    (low, high), (least, most) = ranges.of(call.args[0]), _of_type(call)
    if not known(low, high, least, most):
        return _UNKNOWN
    symbolic = not (isinstance(low, int) and isinstance(high, int))
    return (low, high) if symbolic or (least <= low and high <= most) else _UNKNOWN


def _shape_to_tensor(_: Ranges, call: Any) -> Range:
    sizes = [as_number(each) for each in getattr(call.args[0], "values", ())]
    return (_least(sizes), _most(sizes)) if sizes else _UNKNOWN


def _bucketize(_: Ranges, call: Any) -> Range:
    last = _last(call.args[1], None)
    return 0, None if last is None else last + 1


def _least(values: Sequence[Any]) -> Any:
    return _folded(values, min, tirx.min)


def _most(values: Sequence[Any]) -> Any:
    return _folded(values, max, tirx.max)


def _folded(
    values: Sequence[Any], of_numbers: Callable[..., Any], of_sizes: Callable[..., Any]
) -> Any:
    found = values[0]
    for each in values[1:]:
        numbers = isinstance(found, int) and isinstance(each, int)
        found = of_numbers(found, each) if numbers else of_sizes(_expr(found), _expr(each))
    return found


def _expr(value: Any) -> Any:
    return tirx.const(value, "int64") if isinstance(value, int) else value


_RULES: dict[str, Callable[[Ranges, Any], Range]] = {
    "relax.arange": _arange,
    "relax.clip": _clip,
    "relax.where": _where,
    "relax.concat": _concat,
    "relax.add": _add,
    "relax.subtract": _subtract,
    "relax.multiply": _multiply,
    "relax.minimum": _extreme(_least, 1),
    "relax.maximum": _extreme(_most, 0),
    "relax.mod": _remainder,
    "relax.floor_mod": _remainder,
    "relax.astype": _astype,
    "relax.shape_to_tensor": _shape_to_tensor,
    "relax.bucketize": _bucketize,
}
