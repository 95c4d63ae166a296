"""Joins additions of constants and multiplications by constants that follow each other.

    ((x - mean) / deviation) * gamma + beta    ->    x * a + b

Batch norms that no convolution takes in are such chains, and so are images that are normalised.
All constants are folded in 64 bits, once, when the model is compiled.

An infinity or NaN in `x` comes out as before: no factor becomes 0 that was not, and none overflows.
Rounding differs: each result is rounded twice instead of once for each operator. Where `x` is near
`mean`, its difference is exact, and `x * a` and `b` cancel instead. So where `mean * a` is large
beside usual results, the difference is kept:

    ((x - mean) / deviation) * gamma + beta    ->    (x - mean) * a + b
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax
from tvm.ir import Call, GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import handle, operator_name
from .rewriting import graph_pass, rewritten

#: Most that a sum before a factor may add to the result, to be moved after the factor. With results
#: of about 1, what cancels is rounded by 32 * 2^-24 = 2e-6 at most.
MOST_MOVED = 32.0
#: Range of factors, so that no product of constants overflows where its steps did not.
_RANGE = (2.0**-60, 2.0**60)
#: Share of the larger of two added constants that their sum must have: less of it has few digits.
_LEAST_SUM = 0.5
_OPERATORS = frozenset(
    f"relax.{name}" for name in ("add", "divide", "multiply", "negative", "subtract")
)
#: Operators of whose results a difference of one rounding makes a whole number.
_ROUNDING = frozenset(f"relax.{name}" for name in ("ceil", "floor", "round", "trunc"))


@graph_pass
def FoldAffineMaps(mod: ir.IRModule) -> ir.IRModule:
    """Compute chains of additions of constants and multiplications by constants as one each.

    Only on floats of 32 and 64 bits, through values that nothing else reads, where that leaves less
    to compute, and not before rounding to whole numbers, as in a quantised model. Constants stay as
    small as the largest of the chain.
    """
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Folder))


@dataclass(frozen=True)
class _Map:
    """The value ``(source + before) * factor + after``.

    - `source`: Expr.
    - `steps`: number of its operators.
    - `divides`: whether one of them is a division, which takes several times as long as a product.
    - `before`, `factor`, `after`: in 64 bits; None for no such step.
    """

    source: Any
    steps: int = 0
    divides: bool = False
    before: np.ndarray | None = None
    factor: np.ndarray | None = None
    after: np.ndarray | None = None

    def plus(self, value: np.ndarray) -> _Map | None:
        """Return the map with a constant added to its result; None where digits are lost."""
        first = self.factor is None
        known = self.before if first else self.after
        if known is not None:
            total = known + value
            if (abs(total) < _LEAST_SUM * np.maximum(abs(known), abs(value))).any():
                return None
            value = total
        if not _in_range(value):
            return None
        return replace(self, before=value) if first else replace(self, after=value)

    def times(self, value: np.ndarray) -> _Map | None:
        """Return the map with its result multiplied; None where a constant leaves its range."""
        factor = value if self.factor is None else self.factor * value
        after = None if self.after is None else self.after * value
        if not (_in_range(value, _RANGE[0]) and _in_range(factor, _RANGE[0])):
            return None
        if after is not None and not _in_range(after):
            return None
        return replace(self, factor=factor, after=after)

    def shortest(self) -> _Map:
        """Return the map with what is added before its factor added after it, if little is."""
        if self.before is None or self.factor is None:
            return self
        moved = self.before * self.factor
        if (abs(moved) > MOST_MOVED).any():
            return self
        return replace(self, before=None, after=moved if self.after is None else moved + self.after)

    @property
    def is_shorter(self) -> bool:
        """Whether it is less to compute than its operators are; a single one is left as it is."""
        return self.steps > 1 and (self.divides or len(self.constants) < self.steps)

    @property
    def constants(self) -> list[np.ndarray]:
        """The constants that there are."""
        return [each for each in (self.before, self.factor, self.after) if each is not None]


def _in_range(values: np.ndarray, least: float = 0.0) -> bool:
    """Whether all values but zeros are of a size that products of them are finite and not 0."""
    sizes = abs(values[values != 0])
    return bool(((sizes >= least) & (sizes <= _RANGE[1])).all())


@mutator
class _Folder(PyExprMutator):
    def __init__(self, mod: ir.IRModule) -> None:
        super().__init__(mod)
        self.maps: dict[int, _Map] = {}
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                self.maps.update(_folded(func))

    def visit_call_(self, call: Any) -> Any:
        """Return the last operator of a chain as the operators of its map."""
        found = self.maps.get(handle(call))
        if found is None:
            return super().visit_call_(call)
        value, dtype = self.visit_expr(found.source), str(call.ty.dtype)
        steps = [
            (operator, constant)
            for operator, constant in (
                (relax.op.add, found.before),
                (relax.op.multiply, found.factor),
                (relax.op.add, found.after),
            )
            if constant is not None
        ]
        for operator, constant in steps:
            value = self.builder_.emit(operator(value, relax.const(constant.astype(dtype), dtype)))
        return value


def _folded(func: Any) -> dict[int, _Map]:
    """Return the maps of chains that are worth it, by the handle of their last call."""
    uses: Counter[int] = Counter()
    relax.analysis.post_order_visit(
        func, lambda node: uses.update([handle(node)] if isinstance(node, relax.Var) else [])
    )
    maps: dict[int, tuple[Any, _Map]] = {}
    # Values that other maps are of, or that are rounded to whole numbers.
    inner = set()
    for block in getattr(func.body, "blocks", ()):
        for binding in block.bindings:
            call = getattr(binding, "value", None)
            if isinstance(call, Call) and _rounds(call):
                inner.add(handle(call.args[0]))
            step = _step(call) if isinstance(call, Call) else None
            if step is None:
                continue
            source = handle(step[0])
            chain = maps[source][1] if source in maps and uses[source] == 1 else None
            longer = None if chain is None else _then(chain, call, step[1])
            if longer is not None:
                inner.add(source)
            else:
                longer = _then(_Map(step[0]), call, step[1])
            if longer is not None:
                maps[handle(binding.var)] = (call, longer)
    ends = [each for var, each in maps.items() if var not in inner]
    short = {handle(call): each.shortest() for call, each in ends}
    return {call: each for call, each in short.items() if each.is_shorter}


def _rounds(call: Any) -> bool:
    name, dtype = operator_name(call), str(getattr(call.ty, "dtype", ""))
    return name in _ROUNDING or (name == "relax.astype" and "float" not in dtype)


def _step(call: Any) -> tuple[Any, np.ndarray | None] | None:
    """Return what a call adds a constant to, or multiplies by it, and the constant.

    None for any other call; no constant for a negation.
    """
    name = operator_name(call)
    if name not in _OPERATORS or str(getattr(call.ty, "dtype", "")) not in ("float32", "float64"):
        return None
    if name == "relax.negative":
        return call.args[0], None
    constants = [isinstance(each, GenericConst) for each in call.args]
    if constants[0] == constants[1] or (constants[0] and name == "relax.divide"):
        return None
    value, constant = call.args if constants[1] else call.args[::-1]
    array = np.asarray(constant.value.numpy(), "float64")
    # The constant is broadcast to the value's shape, and not the other way.
    if not np.isfinite(array).all() or not tvm_ffi.structural_equal(value.ty, call.ty):
        return None
    return value, array


def _then(chain: _Map, call: Any, constant: np.ndarray | None) -> _Map | None:
    """Return a map with one more operator, None if the two do not fit together."""
    name = call.op.name
    divides = chain.divides or name == "relax.divide"
    chain = replace(chain, steps=chain.steps + 1, divides=divides)
    if constant is None:
        return chain.times(np.array(-1.0))
    together = np.broadcast_shapes(*(each.shape for each in (*chain.constants, constant)))
    if math.prod(together) > max(each.size for each in (*chain.constants, constant)):
        return None
    if name == "relax.add":
        return chain.plus(constant)
    if name == "relax.multiply":
        return chain.times(constant)
    if name == "relax.divide":
        return None if (constant == 0).any() else chain.times(1.0 / constant)
    if isinstance(call.args[0], GenericConst):
        negative = chain.times(np.array(-1.0))
        return None if negative is None else negative.plus(constant)
    return chain.plus(-constant)
