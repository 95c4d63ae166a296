"""Reads a function as one 2-D convolution in layout NCHW, with its padding and what follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...recognize.stages import Axis, Stage
from ...rewrites.step import NotRewritten
from ...tir.walk import loads, same, uses
from .read_images import Images, check_other, fields_of, is_at, one_reduction
from .tiles import BANK, FLOATS


@dataclass(frozen=True)
class Convolution2d(Images):
    """A convolution that can be scheduled: products that are summed over channels, too.

    - `channel`: axis that is summed over.
    - `weight`: tvm.ir.TensorLoad.
    """

    channel: Axis
    weight: Any


_NO_CONV = "it is not one 2-D convolution in layout NCHW and OIHW, summed in float32"


def find_conv2d(func: tirx.PrimFunc) -> Convolution2d:
    """Return the convolution that a function computes.

    - `func`: not scheduled.
    - Raises NotRewritten: it computes something else.
    """
    program, place = one_reduction(func, _NO_CONV)
    sums = program.stages[place]
    x, weight = _factors(sums)
    channel, *taps = sums.reduced
    if not is_at(weight, (sums.axes[1], channel, *taps)):
        raise NotRewritten(_NO_CONV)
    if not is_at(x, (sums.axes[0], channel)):
        raise NotRewritten(f"{_NO_CONV}: it has groups, or channels that are not the second axis")
    columns = sums.axes[3].extent
    if columns > BANK:
        raise NotRewritten(
            f"a row of its result has {columns} columns, and a bank of PSUM holds {BANK}"
        )
    found = Convolution2d(
        **fields_of(func, program, place, x, taps), channel=channel, weight=weight
    )
    _check_types(found)
    for load in found.others.values():
        check_other(found, load)
    return found


def _check_types(found: Convolution2d) -> None:
    """Refuse an image of another type than the weights."""
    read = [str(load.source.ty.dtype) for load in loads(found.padded)]
    weights = str(found.weight.source.ty.dtype)
    if read != [weights] or found.dtype != weights:
        raise NotRewritten(f"it multiplies {found.dtype} with {weights}")


def _factors(sums: Stage) -> tuple[Any, Any]:
    """Return the loads of the image and of the weights."""
    value, init = sums.value, sums.init
    shaped = len(sums.axes) == 4 and len(sums.reduced) == 3 and len(sums.stores) == 1
    if not shaped or not isinstance(value, prim.Add) or str(value.ty.dtype) != "float32":
        raise NotRewritten(_NO_CONV)
    if not isinstance(init, prim.FloatImm) or float(init.value) != 0:
        raise NotRewritten(_NO_CONV)
    own = [isinstance(e, TensorLoad) and same(e.source, sums.output) for e in (value.a, value.b)]
    product = value.b if own[0] else value.a
    if not any(own) or not isinstance(product, prim.Mul):
        raise NotRewritten(_NO_CONV)
    found = [e.value if isinstance(e, prim.Cast) else e for e in (product.a, product.b)]
    if not all(isinstance(e, TensorLoad) and str(e.source.ty.dtype) in FLOATS for e in found):
        raise NotRewritten(_NO_CONV)
    column = sums.axes[3].var
    found.sort(key=lambda load: not uses(load, column))
    return found[0], found[1]
