"""Functions of symbolic sizes by kernels for constant numbers of rows, at offsets.

The rows are computed in blocks by kernels for fewer and fewer of them; the last block of a kernel
may begin earlier, and compute rows again, where that saves several smaller ones:

    at = 0
    for i in range((rows - at) // 32 + again):       kernel for 32 rows
        first = min(at + i * 32, rows - 32)
    for i in range((rows - at) // 8 + again):        kernel for 8 rows
    ...
    for i in range(rows - at):                       kernel for one row
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import prim

from ....recognize.row_axes import RowAxes
from ....tir.build import in_root, renamed, sequence, with_fields
from ....tir.walk import handle, parts_of, substitute
from ..loops import INDEX, index, wide

#: A kernel computes rows again if at least this share of its rows is missing.
AGAIN = (3, 4)


def joined(
    axes: RowAxes, kernels: Mapping[int, Any], packed: frozenset[int], parallel: bool
) -> Any:
    """Return a function for all sizes.

    - `kernels`: by their number of rows, that for one row among them. The parameters are those of
      ``axes.function(rows)``; those that are packed are packed alike.
    - `packed`: indices of these parameters that are packed.
    - `parallel`: whether the blocks of the first kernel are computed in parallel.
    """
    first = next(iter(kernels.values()))
    params = [first.params[at] if at in packed else param for at, param in enumerate(axes.buffers)]
    table = {handle(old): new for old, new in zip(axes.buffers, params, strict=True)}
    whole = [table.get(handle(param), param) for param in axes.func.params]
    if axes.rows:
        body = _pieces(axes, kernels, params, {}, parallel)
        return with_fields(axes.func, params=whole, body=in_root(body))
    outer = {number: tirx.Var(f"outer_{number}", INDEX) for number in axes.outer}
    body = _pieces(axes, kernels, params, outer, parallel)
    for number in reversed(axes.outer):
        extent = wide(axes.extents[number])
        body = tirx.For(outer[number], index(0), extent, tirx.ForKind.SERIAL, body)
    return with_fields(axes.func, params=whole, body=in_root(body))


def _pieces(
    axes: RowAxes,
    kernels: Mapping[int, Any],
    params: list[Any],
    outer: Mapping[int, Any],
    parallel: bool,
) -> Any:
    """Return the loops over the blocks of each kernel, the kernel with the most rows first."""
    if axes.inner is None:
        return _call(axes, kernels[1], params, outer)
    together = axes.rows or (axes.inner,)
    count: Any = index(1)
    for number in together:
        count = count * wide(axes.extents[number])
    # A buffer: of variables that are bound to each other, TVM makes one long expression.
    done = tirx.decl_buffer((index(1),), INDEX, "done")
    at = tirx.BufferLoad(done, [index(0)])
    made: list[Any] = [tirx.AllocBuffer(done), tirx.BufferStore(done, index(0), [index(0)])]
    for place, rows in enumerate(sorted(kernels, reverse=True)):
        in_parallel = parallel and place == 0
        blocks = _blocks(count - at, count, rows, not in_parallel)
        step, first = tirx.Var(f"block_{rows}", INDEX), tirx.Var(f"first_{rows}", INDEX)
        call = _call(axes, kernels[rows], params, {**outer, **_apart(axes, together, first)})
        start = tirx.Bind(first, prim.Min(at + step * rows, count - rows))
        kind = tirx.ForKind.PARALLEL if in_parallel else tirx.ForKind.SERIAL
        made.append(tirx.For(step, index(0), blocks, kind, sequence([start, call])))
        after = prim.Min(at + blocks * rows, count)
        made.append(tirx.BufferStore(done, after, [index(0)]))
    return sequence(made[:-1])


def _apart(axes: RowAxes, together: tuple[int, ...], row: Any) -> dict[int, Any]:
    """Return the values of axes that are counted together."""
    found = {}
    for number in reversed(together[1:]):
        extent = wide(axes.extents[number])
        found[number] = prim.FloorMod(row, extent)
        row = prim.FloorDiv(row, extent)
    return {**found, together[0]: row}


def _blocks(left: Any, count: Any, rows: int, may_repeat: bool) -> Any:
    """Return how often a kernel runs for the rows that are left of all.

    Threads must not compute the same rows: a kernel may store sums before they are finished.
    """
    if rows == 1:
        return left
    full = prim.FloorDiv(left, index(rows))
    if not may_repeat:
        return full
    share, of = AGAIN
    missing = prim.FloorMod(left, index(rows)) * of >= index(rows * share)
    again = prim.And(count >= index(rows), missing)
    return full + tirx.if_then_else(again, index(1), index(0))


def _call(axes: RowAxes, kernel: Any, params: list[Any], at: Mapping[int, Any]) -> Any:
    """Return the body of a kernel for the rows that begin at some values of the axes."""
    table: dict[Any, Any] = {}
    declared = []
    for own, param, whole in zip(kernel.params, params, axes.buffers, strict=True):
        numbers = axes.axes_of(whole)
        if all(number is None for number in numbers):
            table[own] = param
            continue
        # The kernel's views of a parameter take its pointer, so that this is what is moved.
        part = tirx.decl_buffer(list(own.shape), str(own.dtype), f"{own.name}_rows")
        indices = [
            prim.IntImm(str(size.ty.dtype), 0) if number is None else at[number]
            for number, size in zip(numbers, whole.shape, strict=True)
        ]
        declared.append(
            tirx.DeclBuffer(part, data=tirx.address_of(tirx.BufferLoad(param, indices)))
        )
        table[own] = part
    body = substitute(kernel.body, table | _own_variables(kernel.body))
    if isinstance(body, s_tir.SBlockRealize):
        body = with_fields(body, block=renamed(body.block, f"{handle(kernel)}"))
    return sequence([*declared, body])


def _own_variables(body: Any) -> dict[Any, Any]:
    """Return variables in place of those of loops and blocks.

    Kernels that are made by TVM's primitives keep the variables of the function, with an extent for
    each number of rows.
    """
    found = [each.loop_var for each in parts_of(body, tirx.For)]
    found += [axis.var for block in parts_of(body, s_tir.SBlock) for axis in block.iter_vars]
    return {var: tirx.Var(str(var.name), str(var.ty.dtype)) for var in found}
