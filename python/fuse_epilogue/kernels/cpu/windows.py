"""Guards along the lanes, which hold for most rows or change at some of them; windows of lanes.

    pool[i] = max over k of: if 1 <= 2 i + k < 57 then x[2 i + k - 1] else -inf

For rows from 1 to 27, the guard always holds: these are computed in vectors without it, those at
the borders one by one. Where the guards have no other variables, each is true or false for all rows
between two at which one of them changes:

    y[j] = if j < 64 then a[j] else (if j < 96 then b[j - 64] else c[j - 96])

is copied from one array after the other, without a condition.

A vector of x[2 i + c] is shuffled from two vectors that lie beside each other, those of
x[2 i + c + 1] too: both are loaded once. Without such a neighbour, the second one ends with the
last element that is used, so that nothing after it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, TensorLoad, prim
from tvm.sym import Analyzer

from ...recognize.stages import Axis, analyzer_of
from ...tir.affine import affine_of, at_least_zero
from ...tir.expressions import is_guard
from ...tir.walk import conjuncts, handle, loads, parts_of, substitute, uses
from .loops import index, wide

#: Rows at either end that may be computed one by one.
BORDER = 16


def analyzer_with(axes: Iterable[Axis], at: Any, begin: int, end: int) -> Analyzer:
    """Return an analyzer that knows some axes, and that a variable is in a range."""
    analyzer = analyzer_of(axes)
    analyzer.bind(at, Range.from_min_extent(index(begin), index(end - begin)))
    return analyzer


def without_proved_guards(value: Any, analyzer: Analyzer) -> Any:
    """Return a value without guards that always hold.

    - `value`: Expr.
    - `analyzer`: knows the ranges of the variables in it.
    """

    def rule(call: Any) -> Any:
        if not is_guard(call):
            return call
        left = [each for each in conjuncts(call.args[0]) if not analyzer.can_prove(each)]
        if not left:
            return call.args[1]
        return tirx.if_then_else(tirx.all(*left), *call.args[1:])

    return tvm_ffi.structural_map(value, (Call, rule))


@dataclass(frozen=True)
class Switch:
    """A condition that changes at one value of a variable.

    - `place`: the first value at which it is not as it is for smaller ones.
    - `after`: whether it holds from there on.
    """

    place: int
    after: bool

    def at(self, value: int) -> bool:
        """Return whether the condition holds at a value of the variable."""
        return (value >= self.place) == self.after


def switches(conditions: Iterable[Any], at: Any) -> dict[int, Switch] | None:
    """Return where conditions change, by their handles; None if one is of another kind.

    - `conditions`: inequalities that are linear in the variable, and have no other.
    - `at`: Var.
    """
    found = {}
    for each in conditions:
        value = at_least_zero(each)
        linear = None if value is None else affine_of(wide(value), [at])
        if linear is None or linear.constant is None:
            return None
        (factor,), constant = linear.factors, linear.constant
        # The first value for which factor * value + constant is at least 0, or below it.
        if factor > 0:
            found[handle(each)] = Switch(-(constant // factor), True)
        elif factor < 0:
            found[handle(each)] = Switch(constant // -factor + 1, False)
        else:
            return None
    return found


def with_decided_guards(value: Any, known: Mapping[int, Switch], place: int) -> Any:
    """Return a value as it is at some value of a variable, without conditions that are known then.

    - `value`: Expr.
    - `known`: by the handles of conditions.
    - `place`: value of their variable.
    """

    def rule(call: Any) -> Any:
        if not is_guard(call):
            return call
        terms = conjuncts(call.args[0])
        left = [each for each in terms if handle(each) not in known]
        if not all(known[handle(each)].at(place) for each in terms if handle(each) in known):
            return call.args[2]
        if len(left) == len(terms):
            return call
        return tirx.if_then_else(tirx.all(*left), *call.args[1:]) if left else call.args[1]

    return tvm_ffi.structural_map(value, (Call, rule))


def guards(values: Iterable[Any], at: Any) -> list[Any]:
    """Return the conditions that guard a part of some values and depend on a variable."""
    found: list[Any] = []
    for value in values:
        calls = parts_of(value, Call)
        for call in calls:
            if is_guard(call):
                found += [each for each in conjuncts(call.args[0]) if uses(each, at)]
    return found


def segments(
    conditions: Sequence[Any], axes: Sequence[Axis], at: Any, extent: int
) -> list[tuple[int, int]]:
    """Return ranges of a variable, in one of which the conditions hold for all of its values.

    - `axes`: all other variables in them.
    - `at` (Var): from 0.
    - Returns: begin and end of each; one range if there is none in which the conditions hold.
    """

    def holds(begin: int, end: int) -> bool:
        analyzer = analyzer_with(axes, at, begin, end)
        return all(analyzer.can_prove(each) for each in conditions)

    begin, end = 0, extent
    while begin < min(BORDER, extent) and not holds(begin, begin + 1):
        begin += 1
    while end > max(begin, extent - BORDER) and not holds(end - 1, end):
        end -= 1
    if not conditions or end <= begin or not holds(begin, end):
        return [(0, extent)]
    return [each for each in ((0, begin), (begin, end), (end, extent)) if each[0] < each[1]]


def has_stride(value: Any, at: Any) -> bool:
    """Return whether a value loads every second element along a variable."""
    return any(_stride(load, at) == 2 for load in loads(value))


def strided_vector(
    value: Any, at: Any, table: Mapping[Any, Any], count: int, tap: Axis | None = None
) -> Any:
    """Return a vector of a value that loads every second element, None for any other value.

    - `value` (Expr): a load, a constant, or a choice of them by a condition that is the same for
      all lanes.
    - `at` (Var): the index along the lanes.
    - `table`: all variables, `at` as it is in the first lane.
    - `count`: number of lanes: even.
    - `tap`: an axis whose elements are all computed, for the same lanes; `table` has its number.
    """
    if count % 2 or not has_stride(value, at):
        return None

    def vector(node: Any, begin: int) -> Any:
        if isinstance(node, prim.FloatImm | prim.IntImm):
            return prim.Broadcast(node, count)
        if isinstance(node, TensorLoad):
            beside = begin if tap is not None and _stride(node, tap.var) == 1 else None
            return _load(node, _stride(node, at), table, count, beside)
        if is_guard(node) and not uses(node.args[0], at):
            # What is guarded by the tap's number must not be read for its neighbour.
            if tap is not None and uses(node.args[0], tap.var):
                begin = -2
            arms = [vector(arm, begin) for arm in node.args[1:]]
            if all(arm is not None for arm in arms):
                return tirx.if_then_else(substitute(node.args[0], table), *arms)
        return None

    return vector(value, _pair_of(tap, table))


def _pair_of(tap: Axis | None, table: Mapping[Any, Any]) -> int:
    """Return where the pair of taps begins that a tap is one of: 0, -1, or -2 if it has none."""
    if tap is None:
        return -2
    number = int(table[tap.var])
    if number % 2:
        return -1
    if number + 1 < tap.extent:
        return 0
    return -1 if number else -2


def _load(
    node: Any, stride: int | None, table: Mapping[Any, Any], count: int, pair: int | None
) -> Any:
    first = substitute(node.indices[0], table)

    def beside(begin: int) -> Any:
        ramp = prim.Ramp(Analyzer().simplify(first + index(begin)), index(1), count)
        return tirx.BufferLoad(node.source, [ramp])

    if stride == 0:
        return prim.Broadcast(tirx.BufferLoad(node.source, [first]), count)
    if stride == 1:
        return beside(0)
    if stride != 2:
        return None
    if pair in (0, -1):
        lanes = [*range(-pair, 2 * count, 2)]
        both = [beside(pair), beside(pair + count)]
    else:
        lanes = [*range(0, count, 2), *range(count + 1, 2 * count, 2)]
        both = [beside(0), beside(count - 1)]
    return tirx.Shuffle(both, [prim.IntImm("int32", lane) for lane in lanes])


def _stride(load: Any, at: Any) -> int | None:
    found = affine_of(load.indices[0], [at])
    return None if found is None else found.factors[0]
