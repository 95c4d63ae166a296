"""The evaluator, with an eye on what a compiler takes never to happen.

Quotients that do not fit end a run, as a division by zero does. A product of 32 bits or more that
overflows and a float that does not fit into an integer have a result here, as on most machines;
that they happened is noted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from tvm import tirx

from fuse_epilogue.verify.evaluate import Program
from fuse_epilogue.verify.evaluation.expressions import ExpressionWriter
from fuse_epilogue.verify.evaluation.integers import integer_operation
from fuse_epilogue.verify.evaluation.parameters import declare_parameters
from fuse_epilogue.verify.evaluation.scalar_ops import RUNTIME, MachineDialect
from fuse_epilogue.verify.evaluation.scalars import (
    POISON,
    EvaluationError,
    ScalarType,
    float_to_int,
)
from fuse_epilogue.verify.evaluation.scalars import round_bfloat16 as stored
from fuse_epilogue.verify.evaluation.statements import StatementWriter, unwritten
from fuse_epilogue.verify.evaluation.values import Value

from .data import Arrays


class Watch:
    """What happened in a run that a compiler takes never to happen; empty if nothing did."""

    def __init__(self) -> None:
        self.happened = ""

    def product(self, value: Any, low: int, high: int) -> Any:
        """Return a product, wrapped into its type."""
        if value is POISON or low <= value <= high:
            return value
        self.happened = self.happened or f"a product is {value}"
        return (value - low) % (high - low + 1) + low

    def sum(self, value: Any, low: int, high: int) -> Any:
        """Return a sum or a difference, wrapped into its type."""
        if value is POISON or low <= value <= high:
            return value
        self.happened = self.happened or f"a sum is {value}"
        return (value - low) % (high - low + 1) + low

    def converted(self, value: Any, bits: int, signed: bool) -> Any:
        """Return a float as an integer."""
        result = float_to_int(value, bits, signed)
        if result is not POISON and (not math.isfinite(value) or int(value) != result):
            self.happened = self.happened or f"{value} becomes an integer of {bits} bits"
        return result


def dividend(value: Any, divisor: Any, low: int) -> Any:
    """Return a dividend, which must not be the smallest number if the divisor is -1."""
    if value is not POISON and divisor is not POISON and value == low and divisor == -1:
        raise EvaluationError(f"the quotient of {value} and -1 does not fit")
    return value


class _Watching(MachineDialect):
    """Source with calls of a `Watch`."""

    def __init__(self, namespace: dict[str, Any], sums: bool) -> None:
        super().__init__(namespace)
        self._watched = {"mul": "product", **({"add": "sum", "sub": "sum"} if sums else {})}
        self._divisors = itertools.count()

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Return an operation on two values of one type."""
        type = a.type
        if type.kind == "i" and name in _DIVISIONS and b.low <= -1 <= b.high and a.low == type.low:
            divisor = f"divisor{next(self._divisors)}"
            first = f"dividend({a.code}, ({divisor} := {b.code}), {type.low})"
            a = Value(first, type, False, a.low, a.high)
            b = Value(divisor, type, False, b.low, b.high)
        if type.kind in "iu" and type.bits >= 32 and name in self._watched:
            code, low, high = integer_operation(name, a, b)
            if not type.low <= low <= high <= type.high:
                return Value(f"watch.{self._watched[name]}({code}, {type.low}, {type.high})", type)
        return super().binary(name, a, b)

    def cast(self, a: Value, target: ScalarType) -> Value:
        """Return a conversion."""
        if a.type.kind == "f" and target.kind in "iu":
            signed = target.kind == "i"
            return Value(f"watch.converted({a.code}, {target.bits}, {signed})", target)
        return super().cast(a, target)


_DIVISIONS = ("div", "truncmod", "floordiv", "floormod")


class Watched:
    """A function that can be run.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
    sums : bool
        Whether sums and differences are watched too. Those of a reduction may overflow on the way:
        they are modulo 2^n.

    Raises
    ------
    UnsupportedError
        If there is something in it that cannot be evaluated.
    """

    def __init__(self, func: tirx.PrimFunc, sums: bool = False) -> None:
        self._watch = Watch()
        namespace = {
            **RUNTIME,
            "EvaluationError": EvaluationError,
            "unwritten": unwritten,
            "stored": stored,
            "dividend": dividend,
            "watch": self._watch,
        }
        writer = StatementWriter(ExpressionWriter(_Watching(namespace, sums)))
        parameters, sizes, names = declare_parameters(func, writer)
        writer.write(func.body)
        source = "\n".join([f"def main({', '.join(names)}):", *writer.lines, " return"])
        written = set(writer.written)
        for param, var in zip(parameters, func.params, strict=True):
            param.written = var.__chandle__() in written
        self._program = Program(parameters, sizes, source, namespace, False, writer.stores)

    def run(self, arrays: Arrays, sizes: Mapping[str, int]) -> str:
        """Execute the function; return what happened that has no defined result, if anything.

        Parameters
        ----------
        arrays : dict[str, numpy.ndarray]
            Changed in place.
        sizes : mapping of str to int

        Raises
        ------
        EvaluationError
            If the function does what ends it, or what nothing can be said about.
        """
        self._watch.happened = ""
        self._program.run(arrays, sizes)
        return self._watch.happened
