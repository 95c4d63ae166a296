"""Makes one function of reductions along the same rows, and of the operators between them.

FuseOps puts each reduction into a function of its own, so that a row is read again for each:

    m = max(x);  s = sum(exp(x - m));  y = log(s) + m        log-sum-exp: a row is read once
    h = x + r;  y = h * rsqrt(mean(h * h) + eps)             RMS norm: `h` is a result as well

After this pass they are one PrimFunc, which computes a row after the other. It may have several
results. Operators on the result of a product stay with the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from ...recognize.row_program import read_row_program
from ...recognize.stages import read_program
from ...rewrites.branches import with_branches
from ...tir.walk import handle, operator_name
from .one_function import call_of, in_place_of, one_function
from .rewriting import BINARY, UNARY, constant_shape, graph_pass, tensors_of, with_functions

#: Operators with reductions, by the name of the attribute that has the axes.
_REDUCTIONS = {
    **{f"relax.{name}": "axis" for name in ("max", "mean", "min", "prod", "std", "sum")},
    **{f"relax.{name}": "axis" for name in ("argmax", "argmin", "variance")},
    **{f"relax.nn.{name}": "axis" for name in ("log_softmax", "softmax")},
    **{f"relax.nn.{name}": "axes" for name in ("layer_norm", "rms_norm")},
}
#: Elements of a row at most: fewer and longer rows would leave threads without work.
_LONGEST = 1 << 16
#: Picks an element of each row.
_GATHER = "relax.gather_elements"
#: Operators that change nothing but the shape.
_VIEWS = frozenset(
    f"relax.{name}" for name in ("broadcast_to", "expand_dims", "reshape", "squeeze")
)
#: Operators of each element.
_ELEMENTWISE = (
    UNARY
    | BINARY
    | frozenset(
        f"relax.{name}"
        for name in (
            *("equal", "greater", "greater_equal", "isinf", "isnan", "less", "less_equal"),
            *("logical_and", "logical_not", "logical_or", "not_equal", "where"),
        )
    )
)


@graph_pass
def GroupRows(mod: ir.IRModule) -> ir.IRModule:
    """Make a PrimFunc of each group of reductions along the same rows.

    Only groups that one kernel computes in one loop over rows are made, and only those that would
    not be one function without the pass.
    """
    return with_functions(mod, _grouped)


def _grouped(block: Any, builder: Any) -> Any:
    """Return a block of bindings with each group as a call of a function of its own."""
    if not isinstance(block, relax.DataflowBlock):
        return block
    bindings = list(block.bindings)
    seen: set[int] = set()
    tried: set[tuple[int, ...]] = set()
    for seed in block.bindings:
        rows = _rows_of(seed.value)
        if rows is None or handle(seed.var) in seen:
            continue
        graph = _Graph(bindings)
        for group in graph.groups(seed, rows):
            members = tuple(handle(each.var) for each in group)
            if members in tried:
                continue
            tried.add(members)
            results = [each for each in group if graph.is_read_elsewhere(each, group)]
            func = _function(group, results)
            if func is not None:
                seen.update(members)
                made = call_of(group, results, func, builder, "rows")
                bindings = in_place_of(bindings, group, made)
                break
    return relax.DataflowBlock(bindings) if seen else block


def _function(group: Sequence[Any], results: Sequence[Any]) -> Any:
    """Return the PrimFunc of a group, None if that is not one loop over rows."""
    func = one_function(group, results)
    program = None if func is None else read_program(with_branches(func))
    found = None if program is None else read_row_program(program)
    return func if found is not None and len(found.groups) == 1 else None


@dataclass(frozen=True)
class _Rows:
    """Rows of a tensor: its shape, and the axes that are reduced."""

    shape: tuple[int, ...]
    axes: frozenset[int]

    def has(self, value: Any) -> bool:
        """Whether a tensor has the shape of all rows, or of one value for each row."""
        shape = constant_shape(value)
        kept = [size for axis, size in enumerate(self.shape) if axis not in self.axes]
        ones = [1 if axis in self.axes else size for axis, size in enumerate(self.shape)]
        return shape in (list(self.shape), kept, ones)


def _rows_of(value: Any) -> _Rows | None:
    """Return the rows that an operator reduces, None if it is not a reduction of short rows."""
    name = operator_name(value)
    shape = constant_shape(value.args[0]) if name in _REDUCTIONS else None
    if shape is None:
        return None
    axes = getattr(value.attrs, _REDUCTIONS[name])
    if axes is None:
        axes = range(len(shape))
    numbers = [axes] if isinstance(axes, int) else list(axes)
    reduced = frozenset(int(axis) % len(shape) for axis in numbers)
    short = 0 < math.prod(shape[axis] for axis in reduced) <= _LONGEST
    return _Rows(tuple(shape), reduced) if reduced and short else None


class _Graph:
    """The bindings of a block, with their readers."""

    def __init__(self, bindings: Sequence[Any]) -> None:
        self.bindings = list(bindings)
        self.bound = {handle(each.var): each for each in bindings}
        self.readers: dict[int, list[Any]] = {}
        for each in bindings:
            for var in relax.analysis.free_vars(each.value):
                self.readers.setdefault(handle(var), []).append(each)
        self._after_product: dict[int, bool] = {}

    def groups(self, seed: Any, rows: _Rows) -> Iterator[list[Any]]:
        """Yield the groups that a reduction may be in, the largest first."""
        group = self.closed(self.reached(seed, rows))
        while len(group) > 1:
            reductions = [n for n, each in enumerate(group) if _rows_of(each.value) is not None]
            if not reductions:
                return
            before = any(rows.shape == _shape(each) for each in group[: reductions[0]])
            picked = any(operator_name(each.value) == _GATHER for each in group)
            if len(reductions) > 1 or before or picked:
                yield group
            # Without what follows the last reduction; then without that.
            last = reductions[-1]
            group = self.closed(group[: last + 1 if last + 1 < len(group) else last])

    def reached(self, seed: Any, rows: _Rows) -> list[Any]:
        """Return the bindings along the same rows that a reduction is connected with."""
        found, todo = {handle(seed.var)}, [seed]
        while todo:
            each = todo.pop()
            for other in self.near(each, rows):
                if handle(other.var) not in found and self.is_along(other, rows):
                    found.add(handle(other.var))
                    todo.append(other)
        return [each for each in self.bindings if handle(each.var) in found]

    def near(self, binding: Any, rows: _Rows) -> list[Any]:
        """Return producers and readers of an operator, and reductions of what it reads."""
        read = tensors_of(binding.value)
        producers = [self.bound[handle(var)] for var in read if handle(var) in self.bound]
        others = [each for var in read for each in self.readers[handle(var)]]
        beside = [each for each in others if _rows_of(each.value) == rows]
        return [*producers, *self.readers.get(handle(binding.var), []), *beside]

    def is_along(self, binding: Any, rows: _Rows) -> bool:
        """Whether an operator goes along rows, and is not better computed with a product."""
        own = _rows_of(binding.value)
        if own is not None:
            return own == rows
        known = operator_name(binding.value) in _ELEMENTWISE | _VIEWS | {_GATHER}
        return known and rows.has(binding.var) and not self.is_after_product(binding)

    def is_after_product(self, binding: Any) -> bool:
        """Whether FuseOps joins an operator to a product."""
        key = handle(binding.var)
        if key not in self._after_product:
            name = operator_name(binding.value)
            found = False
            if name in _ELEMENTWISE | _VIEWS:
                producers = [self.bound.get(handle(var)) for var in tensors_of(binding.value)]
                found = any(
                    _is_product(each)
                    or (len(self.readers[handle(each.var)]) == 1 and self.is_after_product(each))
                    for each in producers
                    if each is not None
                )
            self._after_product[key] = found
        return self._after_product[key]

    def closed(self, group: Sequence[Any]) -> list[Any]:
        """Return a group without members that wait for others which wait for the group."""
        own = {handle(each.var) for each in group}
        late: set[int] = set()
        for each in self.bindings:
            read = {handle(var) for var in relax.analysis.free_vars(each.value)}
            key = handle(each.var)
            if read & late:
                own.discard(key)
            if key not in own and read & (own | late):
                late.add(key)
        return [each for each in group if handle(each.var) in own]

    def is_read_elsewhere(self, binding: Any, group: Sequence[Any]) -> bool:
        """Whether anything outside a group needs a value."""
        own = {handle(each.var) for each in group}
        others = [r for r in self.readers.get(handle(binding.var), []) if handle(r.var) not in own]
        return bool(others) or not isinstance(binding.var, relax.DataflowVar)


def _shape(binding: Any) -> tuple[int, ...]:
    return tuple(constant_shape(binding.var) or ())


def _is_product(binding: Any) -> bool:
    name = operator_name(binding.value)
    return name == "relax.matmul" or name.startswith("relax.nn.conv")
