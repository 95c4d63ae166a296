"""Reads a function as a reduction of windows of each channel: 2-D depthwise convolution, pooling.

    out[n, c, h, w] = f(init (+) .. (+) x[n, c, h * stride + kh * dilation, ..] * weight[c, kh, kw])

`(+)` adds, or is a maximum or a minimum; only sums have weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...recognize.stages import Axis, Stage
from ...rewrites.step import NotRewritten
from ...tir.build import replace
from ...tir.expressions import is_zero
from ...tir.walk import loads, same, substitute, uses
from .read_images import Images, check_other, fields_of, is_at, one_reduction
from .tiles import FLOATS

#: How the elements of a window are combined.
COMBINED = {prim.Add: "add", prim.Max: "maximum", prim.Min: "minimum"}


@dataclass(frozen=True)
class Windows(Images):
    """A reduction of windows that can be scheduled.

    - `combine` (type): `prim.Add`, `prim.Max` or `prim.Min`.
    - `init` (Expr): a constant.
    - `weight` (tvm.ir.TensorLoad or None): in `out_channel`, `tap_row` and `tap_column`.
    """

    combine: Any
    init: Any
    weight: Any


_NO_WINDOWS = "it is not one 2-D depthwise convolution or pooling in layout NCHW"


def find_windows(func: tirx.PrimFunc) -> Windows:
    """Return the reduction of windows that a function computes.

    - `func`: not scheduled.
    - Raises NotRewritten: it computes something else.
    """
    program, place = one_reduction(func, _NO_WINDOWS)
    sums = program.stages[place]
    combine, x, weight = _parts(sums)
    image, channel, row, column = sums.axes
    x, weight = (_without_units(load, sums) for load in (x, weight))
    if not is_at(x, (image, channel)):
        raise NotRewritten(f"{_NO_WINDOWS}: its windows do not belong to the channel of the result")
    taps = [_tap(index, sums) for index in x.indices[2:]]
    fields = fields_of(func, program, place, x, taps)
    inner = {axis.var for axis in sums.reduced if axis.extent > 1}
    if inner != {tap.var for tap in taps if tap.extent > 1}:
        raise NotRewritten(f"{_NO_WINDOWS}: it reduces more than rows and columns of a window")
    if weight is not None and uses(weight, image.var, row.var, column.var):
        raise NotRewritten(f"{_NO_WINDOWS}: its weights are not per channel")
    fields["result"] = replace(fields["result"], prim.Cast, lambda cast: _divisor(cast, sums))
    found = Windows(**fields, combine=combine, init=sums.init, weight=weight)
    _check(found)
    return found


def _parts(sums: Stage) -> tuple[Any, Any, Any]:
    """Return how windows are combined, the load of the image, and that of the weights or None."""
    value, kind = sums.value, type(sums.value)
    if len(sums.axes) != 4 or len(sums.stores) != 1 or kind not in COMBINED or sums.init is None:
        raise NotRewritten(_NO_WINDOWS)
    own = [isinstance(e, TensorLoad) and same(e.source, sums.output) for e in (value.a, value.b)]
    if sum(own) != 1 or loads(sums.init):
        raise NotRewritten(_NO_WINDOWS)
    term = value.b if own[0] else value.a
    weighted = kind is prim.Add and isinstance(term, prim.Mul)
    factors = [_widened(each) for each in ((term.a, term.b) if weighted else (term,))]
    if not all(isinstance(e, TensorLoad) and len(e.indices) == 4 for e in factors):
        raise NotRewritten(_NO_WINDOWS)
    factors.sort(key=lambda load: not uses(load, sums.axes[3].var, sums.axes[0].var))
    if kind is prim.Add and (str(value.ty.dtype) != "float32" or not is_zero(sums.init)):
        raise NotRewritten("its windows are not summed in float32 starting from zero")
    return kind, factors[0], factors[1] if weighted else None


def _widened(expr: Any) -> Any:
    """Return an expression without its cast to float32."""
    cast = isinstance(expr, prim.Cast) and str(expr.ty.dtype) == "float32"
    return expr.value if cast else expr


def _without_units(load: Any, sums: Stage) -> Any:
    """Return a load with zeros for the reduced axes of one value."""
    units = [axis.var for axis in sums.reduced if axis.extent == 1]
    return None if load is None else substitute(load, {v: tirx.const(0, v.ty.dtype) for v in units})


def _tap(index: Any, sums: Stage) -> Axis:
    """Return the axis of a window's rows or columns; one of a single value if there is none."""
    used = [axis for axis in sums.reduced if axis.extent > 1 and uses(index, axis.var)]
    if len(used) > 1:
        raise NotRewritten("its windows do not have a constant stride and dilation")
    return used[0] if used else Axis(tirx.Var("k", str(sums.axes[0].var.ty.dtype)), 1)


def _divisor(cast: Any, sums: Stage) -> Any:
    """Return a cast integer, such as the number of elements of a window, as a constant if it is."""
    if "int" not in str(cast.value.ty.dtype):
        return cast
    value = sums.analyzer().simplify(cast.value)
    return tirx.const(float(int(value)), cast.ty.dtype) if isinstance(value, prim.IntImm) else cast


def _check(found: Windows) -> None:
    """Refuse other types than floats, and results that depend on where they are."""
    read = [str(load.source.ty.dtype) for load in loads(found.padded)]
    if read != [found.dtype] or found.dtype not in FLOATS:
        raise NotRewritten(f"its images hold {', '.join(read)}")
    if found.weight is not None and str(found.weight.source.ty.dtype) not in FLOATS:
        raise NotRewritten(f"its weights hold {found.weight.source.ty.dtype}")
    for load in found.others.values():
        check_other(found, load)
    numbers = replace(found.result, TensorLoad, lambda load: tirx.const(0, load.ty.dtype))
    if uses(numbers, *(axis.var for axis in found.axes)):
        raise NotRewritten("what follows its windows depends on a result's place")
