"""Functions of symbolic sizes by kernels for constant numbers of rows, at offsets.

The rows are computed in blocks by kernels for fewer and fewer of them; the last block of a kernel
may begin earlier, and compute rows again, where that saves several smaller ones:

    at = 0
    for i in range((rows - at) // 32 + again):       kernel for 32 rows
        first = min(at + i * 32, rows - 32)
    for i in range((rows - at) // 8 + again):        kernel for 8 rows
    ...
    for i in range(rows - at):                       kernel for one row

Where a kernel needs a window of a parameter, it gets a copy of it, with the padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import prim

from ....recognize.row_dimensions import Window
from ....tir.build import in_root, renamed, replace, sequence, with_fields
from ....tir.walk import handle, parts_of, stored_to, substitute, uses
from ..loops import INDEX, flat_index, index, loop, wide
from .row_axes import RowAxes

#: Copies an element, from its indices in a part of a buffer and those in the whole buffer.
Copy = Callable[[list[Any], list[Any]], Any]
#: Returns an element of a buffer from its indices.
Element = Callable[[Any, list[Any]], Any]
#: A kernel computes rows again if at least this share of its rows is missing.
AGAIN = (3, 4)


def joined(
    func: Any,
    axes: RowAxes,
    element: Element,
    kernels: Mapping[int, Any],
    packed: frozenset[int],
    parallel: bool,
) -> Any:
    """Return a function for all sizes.

    - `func`: the function, which is not scheduled.
    - `axes`: that the kernels loop over.
    - `element`: returns an element of a parameter of the kernels from its indices.
    - `kernels`: by their number of rows, that for one row among them. The parameters are those of
      ``axes.function(rows)``; those that are packed are packed alike.
    - `packed`: indices of these parameters that are packed.
    - `parallel`: whether the blocks of the first kernel are computed in parallel; of windows, what
      is around all blocks.
    """
    first = next(iter(kernels.values()))
    params = [first.params[at] if at in packed else param for at, param in enumerate(axes.buffers)]
    table = {handle(old): new for old, new in zip(axes.buffers, params, strict=True)}
    whole = [table.get(handle(param), param) for param in func.params]
    if axes.rows:
        body = _pieces(axes, element, kernels, params, {}, parallel)
    else:
        outer = {number: tirx.Var(f"outer_{number}", INDEX) for number in axes.outer}
        around = parallel and axes.has_windows
        inside = _pieces(axes, element, kernels, params, outer, parallel and not around)
        body = _in_parallel(axes, outer, inside) if around else _in_loops(axes, outer, inside)
    return with_fields(func, params=whole, body=in_root(body))


def _in_loops(axes: RowAxes, outer: Mapping[int, Any], body: Any) -> Any:
    """Return a statement in a loop over each outer axis."""
    for number in reversed(axes.outer):
        extent = wide(axes.extents[number])
        body = tirx.For(outer[number], index(0), extent, tirx.ForKind.SERIAL, body)
    return body


def _in_parallel(axes: RowAxes, outer: Mapping[int, Any], body: Any) -> Any:
    """Return a statement in one parallel loop over all outer axes."""
    if not outer:
        return body
    step = tirx.Var("outer", INDEX)
    values = _apart(axes, axes.outer, step)
    count: Any = index(1)
    for number in axes.outer:
        count = count * wide(axes.extents[number])
    starts = [tirx.Bind(outer[number], values[number]) for number in axes.outer]
    return tirx.For(step, index(0), count, tirx.ForKind.PARALLEL, sequence([*starts, body]))


def _pieces(
    axes: RowAxes,
    element: Element,
    kernels: Mapping[int, Any],
    params: list[Any],
    outer: Mapping[int, Any],
    parallel: bool,
) -> Any:
    """Return the loops over the blocks of each kernel, the kernel with the most rows first."""
    if axes.inner is None:
        return _call(axes, element, kernels[1], params, outer)
    together = axes.rows or (axes.inner,)
    count: Any = index(1)
    for number in together:
        count = count * wide(axes.extents[number])
    # Buffers: of variables that are bound to each other, TVM makes one long expression.
    done, all_rows = (tirx.decl_buffer((index(1),), INDEX, name) for name in ("done", "all_rows"))
    made: list[Any] = [
        tirx.AllocBuffer(done),
        tirx.AllocBuffer(all_rows),
        tirx.BufferStore(done, index(0), [index(0)]),
        tirx.BufferStore(all_rows, count, [index(0)]),
    ]
    at, count = (tirx.BufferLoad(buffer, [index(0)]) for buffer in (done, all_rows))
    for place, rows in enumerate(sorted(kernels, reverse=True)):
        in_parallel = parallel and place == 0
        blocks = _blocks(count - at, count, rows, not in_parallel)
        step, first = tirx.Var(f"block_{rows}", INDEX), tirx.Var(f"first_{rows}", INDEX)
        call = _call(
            axes, element, kernels[rows], params, {**outer, **_apart(axes, together, first)}
        )
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


def _call(
    axes: RowAxes, element: Element, kernel: Any, params: list[Any], at: Mapping[int, Any]
) -> Any:
    """Return the body of a kernel for the rows that begin at some values of the axes."""
    body = kernel.body
    table: dict[Any, Any] = {}
    before: list[Any] = []
    after: list[Any] = []
    stored = stored_to(axes.func.body)
    for own, param, whole in zip(kernel.params, params, axes.buffers, strict=True):
        if not axes.has_rows(whole):
            table[own] = param
            continue
        starts = [
            _start(number, window, at)
            for number, window in zip(axes.axes_of(whole), axes.windows_of(whole), strict=True)
        ]
        if axes.is_in_one_piece(whole):
            # The kernel's views of a parameter take its pointer, so that this is what is moved.
            table[own] = tirx.decl_buffer(list(own.shape), str(own.dtype), f"{own.name}_rows")
            indices = [
                value.astype(str(size.ty.dtype))
                for value, size in zip(starts, whole.shape, strict=True)
            ]
            pointer = tirx.address_of(tirx.BufferLoad(param, indices))
            before.append(tirx.DeclBuffer(table[own], data=pointer))
            continue
        part, body = _of_its_own(own, body)
        table[own] = part
        before.append(tirx.AllocBuffer(part))
        if handle(whole) in stored:
            after.append(_copied(own.shape, part, starts, _into(param, part)))
        else:
            before.append(_copied(own.shape, part, starts, _out_of(element, whole, part)))
    body = substitute(body, table | _own_variables(body))
    if isinstance(body, s_tir.SBlockRealize):
        body = with_fields(body, block=renamed(body.block, f"{handle(kernel)}"))
    return sequence([*before, body, *after])


def _of_its_own(param: Any, body: Any) -> tuple[Any, Any]:
    """Return a buffer in place of a kernel's parameter, and the kernel's body with it.

    The body has the buffer itself where it had a view of the parameter: TVM's StorageRewrite does
    not see what is accessed through a view, and would put another buffer into that memory.
    """
    views = [each.buffer for each in parts_of(body, tirx.DeclBuffer) if uses(each.data, param)]
    shape = list(param.shape)
    if views:
        shape = [index(math.prod(map(int, shape)))]
    part = tirx.decl_buffer(shape, str(param.dtype), f"{param.name}_rows")

    def declared(node: Any) -> Any:
        return tirx.Evaluate(index(0)) if uses(node.data, param) else node

    body = replace(body, tirx.DeclBuffer, declared)
    if views and uses(body, param):
        raise ValueError(f"a kernel accesses {param.name} in two ways, and cannot have a copy")
    return part, substitute(body, dict.fromkeys(map(handle, views), part))


def _into(whole: Any, part: Any) -> Copy:
    """Return what copies an element of a part into the whole buffer."""
    return lambda places, indices: tirx.BufferStore(whole, tirx.BufferLoad(part, places), indices)


def _out_of(element: Element, whole: Any, part: Any) -> Copy:
    """Return what copies an element of a buffer, which may be padded, into a part of it."""
    return lambda places, indices: tirx.BufferStore(part, element(whole, indices), places)


def _start(number: int | None, window: Window | None, at: Mapping[int, Any]) -> Any:
    """Return the first element of a dimension that a kernel needs."""
    if window is not None:
        return at[window.axis] * window.stride
    return index(0) if number is None else at[number]


def _copied(shape: Sequence[Any], part: Any, starts: list[Any], element: Copy) -> Any:
    """Return the loops over the elements of a part of a buffer, which begins at some indices.

    - `shape`: of the part, which may be a buffer of one dimension.
    """

    def nested(places: list[Any]) -> Any:
        if len(places) < len(shape):
            return loop("at", 0, int(shape[len(places)]), lambda place: nested([*places, place]))
        flat = len(part.shape) < len(shape)
        indices = [start + place for start, place in zip(starts, places, strict=True)]
        return element([flat_index(places, shape)] if flat else places, indices)

    return nested([])


def _own_variables(body: Any) -> dict[Any, Any]:
    """Return variables in place of those of loops and blocks.

    Kernels that are made by TVM's primitives keep the variables of the function, with an extent for
    each number of rows.
    """
    found = [each.loop_var for each in parts_of(body, tirx.For)]
    found += [axis.var for block in parts_of(body, s_tir.SBlock) for axis in block.iter_vars]
    return {var: tirx.Var(str(var.name), str(var.ty.dtype)) for var in found}
