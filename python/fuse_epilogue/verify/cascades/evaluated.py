"""Operations of cascades that are not defined for all operands, with where they are evaluated.

Loads, divisions of integers, shifts, conversions of floats to integers and calls that are not known
to be defined. The loop may evaluate those that the program evaluates, at the same rows and keys,
under the same conditions, or more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.ir import TensorLoad

from ...tir.walk import handle
from ..certificate.partial import TOTAL
from ..evaluation.expressions import Steps
from ..evaluation.scalars import ScalarType, scalar_type
from ..evaluation.values import Value
from ..proof.field import Field, Ratio
from ..proof.field_arithmetic import FieldArithmetic
from ..proof.term_expressions import TermValue
from .terms import CascadeTerms, Loads, Program

_DIVISIONS = ("div", "truncmod", "floordiv", "floormod")
_SHIFTS = ("shl", "shr")

#: Conditions, each with whether every target leaves the rest unevaluated where it does not hold: a
#: select and the right operand of "and" are evaluated by some.
Path = tuple[tuple[Ratio, bool], ...]


@dataclass(frozen=True)
class Evaluation:
    """An operation that is evaluated.

    - `kind`: what it is: a load from a buffer, a division of some type, and so on.
    - `operands`: those that decide whether it is defined.
    - `path`: the conditions under which it is evaluated.
    - `expr` (Expr): the expression.
    """

    kind: Hashable
    operands: tuple[Ratio, ...]
    path: Path
    expr: Any


class Evaluations(CascadeTerms):
    """Makes numbers of expressions, and remembers what is not defined for all operands.

    - `loads`: numbers that loads give.
    - `values`: numbers that variables stand for, by handle.
    - `noted` (Callable): whether a load counts: one of memory that is known to be there does not.
    - `path`: the conditions around the expression at hand.
    """

    def __init__(
        self,
        arithmetic: FieldArithmetic,
        loads: Loads,
        values: Mapping[int, Ratio],
        noted: Callable[[Any], bool],
    ) -> None:
        super().__init__(arithmetic, loads, values)
        self._noted = noted
        self.found: list[Evaluation] = []
        self.path: Path = ()

    def under(self, conditions: Iterable[Any]) -> None:
        """Evaluate conditions one after the other; what follows is evaluated under them."""
        for condition in conditions:
            self.path = (*self.path, (self.number(condition), True))

    def _choose(self, condition: Any, a: Any, b: Any, lazy: bool) -> Steps:
        test: Any = yield condition
        outer = self.path
        self.path = (*outer, (test.term, lazy))
        yes = yield a
        self.path = (*outer, (self._field.sub(self._field.one, test.term), lazy))
        no = yield b
        self.path = outer
        return self.dialect.choose(test, yes, no, lazy)

    def _select(self, expr: Any) -> Steps:
        # Whether it is a branch depends on the target.
        return self._choose(expr.condition, expr.true_value, expr.false_value, False)

    def _logical(self, name: str, *operands: Any) -> Steps:
        outer, values = self.path, list[Any]()
        for operand in operands:
            value: Any = yield operand
            values.append(value)
            if name != "not":
                no = self._field.sub(self._field.one, value.term)
                self.path = (*self.path, (value.term if name == "and" else no, False))
        self.path = outer
        return self.dialect.logical(name, values)

    def operation(self, name: str, expr: Any, operands: Any, a: Any, b: Any) -> Value:
        """Note an operation of integers, and return its value."""
        type: ScalarType = a.type
        known = b.term.constant
        if type.kind in "iu" and name in _DIVISIONS and known in (None, 0, -1):
            self._note(("division", type.name), (a.term, b.term), expr)
        if type.kind in "iu" and name in _SHIFTS and (known is None or not 0 <= known < type.bits):
            self._note(("shift", type.name), (b.term,), expr)
        return super().operation(name, expr, operands, a, b)

    def _cast(self, expr: Any) -> Steps:
        a: Any = yield expr.value
        target = scalar_type(expr.ty.dtype)
        if a.type.kind == "f" and target.kind in "iu":
            self._note(("cast", a.type.name, target.name), (a.term,), expr)
        return a if target is a.type else self.dialect.cast(a, target)

    def called(self, name: str, expr: Any, args: list[Any], type: ScalarType) -> Value:
        """Note a call of a function that is not known to be defined, and return its value."""
        if not (name == "reinterpret" or (name in TOTAL and type.kind in "fb")):
            self._note(("call", name, type.name), tuple(arg.term for arg in args), expr)
        return super().called(name, expr, args, type)

    def _load(self, expr: Any) -> Steps:
        indices = []
        for index in expr.indices:
            value: Any = yield index
            indices.append(value.term)
        if self._noted(expr):
            self._note(("load", handle(expr.source)), tuple(indices), expr)
        term: Any = self._loads(expr, indices)
        return TermValue(term, scalar_type(expr.source.ty.dtype.dtype))

    def _note(self, kind: Hashable, operands: tuple[Ratio, ...], expr: Any) -> None:
        self.found.append(Evaluation(kind, operands, self.path, expr))


class Before:
    """Record of the operations that the function before evaluates, for a row and a key."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._field: Field = program.arithmetic.field
        self._known: dict[Hashable, list[Evaluation]] = {}

    def add(self, expr: Any, values: Mapping[int, Ratio]) -> None:
        """Note what an expression of a block evaluates; of loads also what has been stored there.

        - `expr` (tvm.ir.Expr)
        - `values`: numbers that the block's axes stand for, by handle.
        """
        terms = Evaluations(self._program.arithmetic, self._load, values, _every)
        terms.number(expr)
        for each in terms.found:
            self._known.setdefault(each.kind, []).append(each)

    def _load(self, expr: TensorLoad, indices: list[Ratio]) -> Ratio:
        if handle(expr.source) in self._program.results:
            return self._field.atom(("result", handle(expr.source)), indices)
        stored = self._program.stored(expr, indices)
        if stored is not None:
            # A block of its own, which evaluates that everywhere.
            self.add(*stored)
        return self._program.load(expr, indices)

    def allows(self, need: Evaluation) -> bool:
        """Whether an operation is evaluated before, wherever it is now."""
        return any(
            self._same(need.operands, own.operands) and self._covers(own.path, need.path)
            for own in self._known.get(need.kind, [])
        )

    def _same(self, a: tuple[Ratio, ...], b: tuple[Ratio, ...]) -> bool:
        return len(a) == len(b) and all(map(self._field.equal, a, b))

    def _covers(self, weaker: Path, path: Path) -> bool:
        """Whether conditions hold wherever others do, on every target."""
        for everywhere in (True, False):
            given = [condition for condition, lazy in path if lazy or not everywhere]
            wanted = [condition for condition, lazy in weaker if lazy or not everywhere]
            if not all(any(map(self._field.equal, [one] * len(given), given)) for one in wanted):
                return False
        return True


def _every(load: Any) -> bool:
    return True
