"""The rule for 2-D convolutions on Trainium: products, one for each tap, that add up in PSUM.

    for images:
        load the image, with its zeros                     channels on partitions
        for rows of the result, up to 512 elements:
            for 128 channels of the result:
                for tiles of 128 channels, and taps:       sums += weights @ shifted image
                result = f(sums), store

The weights are transposed once, for all images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...neuron.machine import Machine
from ...neuron.trace import ITEMSIZE
from ...recognize.stages import Axis, Program, Stage, inlined, read_program
from ...rewrites.step import NotRewritten, rewrite
from ...tir.affine import affine_of
from ...tir.build import replace
from ...tir.walk import loads, same, substitute, uses
from ..choice import Choice
from .rule import TransposingRule
from .tiles import BANK, FLOATS, PARTITIONS, best, is_fixed

#: Bytes of a partition up to which an image stays in SBUF as a whole.
_WHOLE_IMAGE = 1 << 16


class Conv2d(TransposingRule):
    """Schedules a 2-D convolution in layout NCHW, its bias, its activation, what is added to it.

    Any kernel size, stride, dilation and padding, one group; in float32, or in 16 bits and summed
    in float32. On trn1 the tensor engine transposes the weights by multiplying with the identity: 0
    times an infinity or NaN spoils other weights there.

    Parameters
    ----------
    finite : bool
        All weights are finite; needed on trn1 only.

    Example
    -------
    >>> from tvm import te, topi
    >>> from fuse_epilogue import neuron, schedules
    >>> x, w = te.placeholder((1, 64, 28, 28)), te.placeholder((64, 64, 3, 3))
    >>> func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 1, 1)])
    >>> kernel = neuron.emit(schedules.neuron.Conv2d().apply(func, "trn2"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            found = find_conv2d(func)
        except NotRewritten as why:
            return Choice("", str(why))
        refused = self._refused(core)
        if refused is not None:
            return refused
        return best(core, [("a product for each tap, channels on partitions", scheduled(found))])


@dataclass(frozen=True)
class Found:
    """A convolution that can be scheduled; expressions are in the axes of its sums.

    - `image`, `out_channel`, `row`, `column`: the axes of the result, in its order.
    - `channel`, `tap_row`, `tap_column`: the axes that are summed over.
    - `shape`: shape of the images with their padding.
    - `strides`, `dilations`: values for rows and columns.
    - `padded` (Expr): an element of an image, in `places`.
    - `weight`: tvm.ir.TensorLoad.
    - `sum` (tvm.ir.Var): a finished sum in `result`.
    - `result`: Expr.
    - `output`: tvm.tirx.Buffer.
    """

    func: tirx.PrimFunc
    image: Axis
    out_channel: Axis
    row: Axis
    column: Axis
    channel: Axis
    tap_row: Axis
    tap_column: Axis
    shape: tuple[int, ...]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padded: Any
    places: tuple[Any, ...]
    weight: Any
    sum: Any
    result: Any
    output: Any

    @property
    def dtype(self) -> str:
        """Type of images and weights."""
        return str(self.weight.source.ty.dtype)

    @property
    def others(self) -> dict[str, Any]:
        """The loads that results depend on besides sums, by their text."""
        return {str(load): load for load in loads(self.result)}


_NO_CONV = "it is not one 2-D convolution in layout NCHW and OIHW, summed in float32"


def find_conv2d(func: tirx.PrimFunc) -> Found:
    """Return the convolution that a function computes.

    - `func`: not scheduled.
    - Raises NotRewritten: it computes something else.
    """
    program = read_program(func) if is_fixed(func) else None
    if program is None or sum(bool(stage.reduced) for stage in program.stages) != 1:
        raise NotRewritten(_NO_CONV)
    place = next(at for at, stage in enumerate(program.stages) if stage.reduced)
    sums = program.stages[place]
    x, weight = _factors(sums)
    before = [stage for stage in program.stages[:place] if sums.reads(stage.output)]
    if len(before) != place or place > 1:
        raise NotRewritten("more than padding comes before its sums")
    sum_var = tirx.Var("sum", "float32")
    output, result = _followed(program, place, sum_var)
    image, out_channel, row, column = sums.axes
    channel, tap_row, tap_column = sums.reduced
    wanted = [axis.var for axis in (out_channel, channel, tap_row, tap_column)]
    if not _is_at(weight, wanted, (out_channel, channel, tap_row, tap_column)):
        raise NotRewritten(_NO_CONV)
    if not _is_at(x, [image.var, channel.var], (image, channel), 2):
        raise NotRewritten(f"{_NO_CONV}: it has groups, or channels that are not the second axis")
    steps = [
        _step(index, own, tap)
        for index, own, tap in zip(x.indices[2:], (row, column), (tap_row, tap_column), strict=True)
    ]
    places = (
        tuple(axis.var for axis in before[0].axes)
        if before
        else tuple(tirx.Var(f"i{at}", str(row.var.ty.dtype)) for at in range(4))
    )
    padded = before[0].value if before else tirx.BufferLoad(x.source, list(places))
    if column.extent > BANK:
        raise NotRewritten(
            f"a row of its result has {column.extent} columns, a bank of PSUM {BANK}"
        )
    found = Found(
        func,
        image,
        out_channel,
        row,
        column,
        channel,
        tap_row,
        tap_column,
        tuple(int(size) for size in x.source.ty.shape),
        (steps[0][0], steps[1][0]),
        (steps[0][1], steps[1][1]),
        padded,
        places,
        weight,
        sum_var,
        result,
        output,
    )
    read = [str(load.source.ty.dtype) for load in loads(padded)]
    if read != [found.dtype] or str(padded.ty.dtype) != found.dtype:
        raise NotRewritten(f"it multiplies {padded.ty.dtype} with {found.dtype}")
    for load in found.others.values():
        _check_other(found, load)
    return found


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


def _is_at(load: Any, variables: list[Any], axes: tuple[Axis, ...], count: int = 4) -> bool:
    """Whether the first indices of a load are these axes; one of a single value may be 0."""
    if len(load.indices) != 4:
        return False
    return all(
        same(index, var) or (axis.extent == 1 and isinstance(index, prim.IntImm))
        for index, var, axis in zip(load.indices[:count], variables, axes, strict=True)
    )


def _step(index: Any, own: Axis, tap: Axis) -> tuple[int, int]:
    """Return stride and dilation of an index of the image."""
    found = affine_of(index, [own.var, tap.var])
    if found is None or found.constant != 0:
        raise NotRewritten(f"{_NO_CONV}: its windows are not a stride and a dilation")
    stride = found.factors[0] if own.extent > 1 else 1
    dilation = found.factors[1] if tap.extent > 1 else 1
    if stride < 1 or dilation < 1:
        raise NotRewritten(f"{_NO_CONV}: its windows are not a stride and a dilation")
    return stride, dilation


def _followed(program: Program, place: int, sum_var: Any) -> tuple[Any, Any]:
    """Return the output and the value that is stored in it, in the axes of the sums."""
    sums = program.stages[place]
    if place == len(program.stages) - 1:
        if not program.is_param(sums.output):
            raise NotRewritten(_NO_CONV)
        return sums.output, sum_var
    small = inlined(program, lambda stage, readers: not any(each.reduced for each in readers))
    last = small.stages[-1]
    own = [load for load in last.loads if same(load.source, sums.output)]
    fits = len(last.axes) == 4 and [a.extent for a in last.axes] == [a.extent for a in sums.axes]
    if len(small.stages) != place + 2 or not own or not fits or not program.is_param(last.output):
        raise NotRewritten("what follows its sums does not compute one element of each")
    if not all(_is_at(load, [a.var for a in last.axes], last.axes) for load in own):
        raise NotRewritten("what follows its sums does not compute one element of each")
    value = replace(
        last.value,
        TensorLoad,
        lambda load: sum_var if same(load.source, sums.output) else load,
    )
    table = {old.var: new.var for old, new in zip(last.axes, sums.axes, strict=True)}
    return last.output, substitute(value, table)


def _check_other(found: Found, load: Any) -> None:
    """Refuse what is neither one value of a channel nor of the shape of the result."""
    name = str(load.source.name)
    axes = (found.image, found.out_channel, found.row, found.column)
    if str(load.source.ty.dtype) not in FLOATS:
        raise NotRewritten(f"'{name}' holds {load.source.ty.dtype}")
    if _is_at(load, [axis.var for axis in axes], axes):
        return
    used = [axis for axis in axes if uses(load, axis.var)]
    plain = all(
        isinstance(index, prim.IntImm) or same(index, found.out_channel.var)
        for index in load.indices
    )
    if not plain or any(axis is not found.out_channel for axis in used):
        raise NotRewritten(f"'{name}' has neither a value for a channel nor the result's shape")


@dataclass(frozen=True)
class Tiling:
    """The tiles of a convolution.

    - `rows`: rows of the result whose sums are in a bank of PSUM together.
    - `whole`: whether an image is loaded as a whole, not the rows of a block.
    - `by_scalar`: whether the scalar engine computes what follows the sums, not the usual one.
    """

    rows: int
    whole: bool
    by_scalar: bool = False


def usual_tiling(found: Found) -> Tiling:
    """Return a tiling that is good: as many rows as a bank holds, small images as a whole."""
    rows = max(1, min(found.row.extent, BANK // found.column.extent))
    tiles = math.ceil(found.channel.extent / PARTITIONS)
    width = found.shape[3] * ITEMSIZE[found.dtype] * tiles
    return Tiling(rows, width * found.shape[2] <= _WHOLE_IMAGE)


def scheduled(found: Found, tiling: Tiling | None = None) -> s_tir.Schedule:
    """Schedule a convolution, for :func:`fuse_epilogue.neuron.emit`."""
    sch = s_tir.Schedule(found.func)
    root = sch.get_sblock("root")
    if tiling is None or tiling == usual_tiling(found):
        rewrite(sch, root, "neuron_conv2d")
    else:
        rewrite(sch, root, "neuron_conv2d_tiles", **vars(tiling))
    return sch
