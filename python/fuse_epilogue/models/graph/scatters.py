"""Scatters whole rows.

TVM's loops go through all places for one column of the updates after the other, and read a place
again for each column:

    for j in columns: for k in places: y[at[k, j], j] += updates[k, j]

After this pass, the columns are inside. Where they share their places, as in graph networks and in
``index_add``, one place is read for each row, and rows are added in vectors. Each element of the
result takes its updates in the same order as before. TVM's loops are wrong for updates of fewer
rows or columns than the data has, which this pass leaves as axes of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm import ir, relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...tir.walk import operator_name
from .rewriting import bound_call, constant_shape, graph_pass, rewritten

#: What a place gets from its value and an update.
_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tirx.min,
    "max": tirx.max,
}
#: Elements of updates from which threads share the work, and the fewest columns of one.
_FOR_THREADS, _COLUMNS = 1 << 16, 32


@graph_pass
def ScatterRows(mod: ir.IRModule) -> ir.IRModule:
    """Scatter the rows of updates one after the other, where all sizes are constant."""
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Scatterer))


@mutator
class _Scatterer(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a scatter as a call of a function with rows in its innermost loop."""
        call = super().visit_call_(call)
        if operator_name(call) != "relax.scatter_elements":
            return call
        combine = _REDUCTIONS.get(str(call.attrs.reduction))
        data, index, updates = call.args
        sizes, places, values = map(constant_shape, call.args)
        if combine is None or sizes is None or places is None or places != values:
            return call
        axis = int(call.attrs.axis) % len(sizes)
        arrays = [data, self._of_rows(index, axis), updates]
        if sizes[:axis] + sizes[axis + 1 :] == places[:axis] + places[axis + 1 :]:
            arrays, axis = [self._rows(each, axis) for each in arrays], 1
        done = self.builder_.call_te(
            partial(_scattered, axis, combine), *arrays, primfunc_name_hint="scatter_rows"
        )
        return relax.op.reshape(self.builder_.emit(done), sizes)

    def _rows(self, value: Any, axis: int) -> Any:
        """Return an array with all axes before and after that of the places as one."""
        shape = constant_shape(value) or []
        joined = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
        return self.builder_.emit(relax.op.reshape(value, joined))

    def _of_rows(self, index: Any, axis: int) -> Any:
        """Return an index with one place for each row, or as it is where columns have their own."""
        shape = constant_shape(index) or []
        if isinstance(index, GenericConst):
            values = index.value.numpy()
            first = values[(..., *[slice(1)] * (len(shape) - axis - 1))]
            same = bool((values == first).all())
            return relax.const(first, str(values.dtype)) if same else index
        spread = bound_call(self, index, "relax.broadcast_to")
        one = [*shape[: axis + 1], *[1] * (len(shape) - axis - 1)]
        same = spread is not None and constant_shape(spread.args[0]) == one
        return spread.args[0] if same else index


def _scattered(
    axis: int, combine: Callable[[Any, Any], Any], data: Any, index: Any, updates: Any
) -> Any:
    """Return the result of a scatter as a tensor of TE; the index may be for whole rows."""
    return te.extern(
        [data.shape],
        [data, index, updates],
        lambda arrays, results: _loops(axis, combine, arrays, results[0]),
        dtype=str(data.dtype),
        name="scatter_rows",
    )


def _loops(
    axis: int, combine: Callable[[Any, Any], Any], arrays: Sequence[Any], result: Any
) -> Any:
    """Return loops that copy the data, and those over the updates: axes before, places, columns."""
    data, index, updates = arrays
    first, *sizes = (int(size) for size in (*([] if axis else [1]), *updates.shape))
    is_large = first * math.prod(sizes) >= _FOR_THREADS
    fitting = (n for n in (8, 4, 2) if sizes[-1] % n == 0 and sizes[-1] // n >= _COLUMNS)
    parts = next(fitting, 1) if is_large and axis < len(updates.shape) - 1 else 1
    width = sizes[-1] // parts
    with IRBuilder() as builder:
        with T.grid(*data.shape) as at:
            T.buffer_store(result, data[tuple(at)], list(at))
        copy = builder.get()
    with IRBuilder() as builder:
        with (T.parallel if is_large else T.serial)(0, first * parts) as part:
            # One more loop: TVM's grid of one loop is a variable, not a list.
            with T.grid(1, *sizes[:-1], width) as (_, *inner):
                at = [*([part // parts] if axis else []), *inner]
                at[-1] = part % parts * width + at[-1]
                of_row = [0 if int(n) == 1 else i for n, i in zip(index.shape, at, strict=True)]
                place = T.cast(index[tuple(of_row)], "int64")
                place = tirx.Select(place < 0, place + data.shape[axis], place)
                to = [*at[:axis], place, *at[axis + 1 :]]
                T.buffer_store(result, combine(result[tuple(to)], updates[tuple(at)]), to)
        return tirx.SeqStmt([copy, builder.get()])
