"""Reads a function as one 2-D convolution in layout NCHW, with its padding and what follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...recognize.inlining import inlined
from ...recognize.stages import Axis, Program, Stage, read_program
from ...rewrites.step import NotRewritten
from ...tir.affine import affine_of
from ...tir.build import replace
from ...tir.walk import loads, same, substitute, uses
from .tiles import BANK, FLOATS, is_fixed


@dataclass(frozen=True)
class Convolution2d:
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


def one_reduction(func: tirx.PrimFunc, refusal: str) -> tuple[Program, int]:
    """Return a function as stages, and the place of the only one that reduces.

    - Raises NotRewritten: there is none, or several; `refusal` says so.
    """
    program = read_program(func) if is_fixed(func) else None
    places = [] if program is None else [at for at, s in enumerate(program.stages) if s.reduced]
    if program is None or len(places) != 1:
        raise NotRewritten(refusal)
    return program, places[0]


def padding_before(program: Program, place: int) -> list[Stage]:
    """Return the stage that pads what the reduction reads, if there is one.

    - Raises NotRewritten: something else comes before the reduction.
    """
    before = [s for s in program.stages[:place] if program.stages[place].reads(s.output)]
    if len(before) != place or place > 1:
        raise NotRewritten("more than padding comes before its reduction")
    return before


def find_conv2d(func: tirx.PrimFunc) -> Convolution2d:
    """Return the convolution that a function computes.

    - `func`: not scheduled.
    - Raises NotRewritten: it computes something else.
    """
    program, place = one_reduction(func, _NO_CONV)
    sums = program.stages[place]
    x, weight = _factors(sums)
    before = padding_before(program, place)
    sum_var = tirx.Var("sum", "float32")
    output, result = followed(program, place, sum_var)
    image, out_channel, row, column = sums.axes
    channel, tap_row, tap_column = sums.reduced
    if not is_at(weight, (out_channel, channel, tap_row, tap_column)):
        raise NotRewritten(_NO_CONV)
    if not is_at(x, (image, channel)):
        raise NotRewritten(f"{_NO_CONV}: it has groups, or channels that are not the second axis")
    along_rows = step_of(x.indices[2], row, tap_row)
    along_columns = step_of(x.indices[3], column, tap_column)
    if column.extent > BANK:
        raise NotRewritten(
            f"a row of its result has {column.extent} columns, a bank of PSUM {BANK}"
        )
    padded, places = image_of(x, before, str(row.var.ty.dtype))
    found = Convolution2d(
        func=func,
        image=image,
        out_channel=out_channel,
        row=row,
        column=column,
        channel=channel,
        tap_row=tap_row,
        tap_column=tap_column,
        shape=tuple(int(size) for size in x.source.ty.shape),
        strides=(along_rows[0], along_columns[0]),
        dilations=(along_rows[1], along_columns[1]),
        padded=padded,
        places=places,
        weight=weight,
        sum=sum_var,
        result=result,
        output=output,
    )
    _check_types(found)
    for load in found.others.values():
        check_other(found, load)
    return found


def image_of(x: Any, padding: Sequence[Stage], index: str) -> tuple[Any, tuple[Any, ...]]:
    """Return an element of the image, with its padding, and the variables for its place."""
    if padding:
        return padding[0].value, tuple(axis.var for axis in padding[0].axes)
    places = tuple(tirx.Var(f"i{at}", index) for at in range(4))
    return tirx.BufferLoad(x.source, list(places)), places


def _check_types(found: Convolution2d) -> None:
    """Refuse an image of another type than the weights."""
    read = [str(load.source.ty.dtype) for load in loads(found.padded)]
    if read != [found.dtype] or str(found.padded.ty.dtype) != found.dtype:
        raise NotRewritten(f"it multiplies {found.padded.ty.dtype} with {found.dtype}")


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


def is_at(load: Any, axes: Sequence[Axis]) -> bool:
    """Whether the first indices of a load are some axes; one of a single value may be 0."""
    return len(load.indices) == 4 and all(
        same(index, axis.var) or (axis.extent == 1 and isinstance(index, prim.IntImm))
        for index, axis in zip(load.indices, axes, strict=False)
    )


def step_of(index: Any, own: Axis, tap: Axis) -> tuple[int, int]:
    """Return stride and dilation of an index of the image."""
    found = affine_of(index, [own.var, tap.var])
    if found is None or found.constant != 0:
        raise NotRewritten("its windows are not at a stride, with a dilation")
    stride = found.factors[0] if own.extent > 1 else 1
    dilation = found.factors[1] if tap.extent > 1 else 1
    if stride < 1 or dilation < 1:
        raise NotRewritten("its windows are not at a stride, with a dilation")
    return stride, dilation


def followed(program: Program, place: int, sum_var: Any) -> tuple[Any, Any]:
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
    if not all(is_at(load, last.axes) for load in own):
        raise NotRewritten("what follows its sums does not compute one element of each")
    value = replace(
        last.value, TensorLoad, lambda load: sum_var if same(load.source, sums.output) else load
    )
    table = {old.var: new.var for old, new in zip(last.axes, sums.axes, strict=True)}
    return last.output, substitute(value, table)


def check_other(found: Any, load: Any) -> None:
    """Refuse what is neither one value of a channel nor of the shape of the result."""
    name = str(load.source.name)
    axes = (found.image, found.out_channel, found.row, found.column)
    if str(load.source.ty.dtype) not in FLOATS:
        raise NotRewritten(f"'{name}' holds {load.source.ty.dtype}")
    if is_at(load, axes):
        return
    used = [axis for axis in axes if uses(load, axis.var)]
    plain = all(
        isinstance(index, prim.IntImm) or same(index, found.out_channel.var)
        for index in load.indices
    )
    if not plain or any(axis is not found.out_channel for axis in used):
        raise NotRewritten(f"'{name}' has neither a value for a channel nor the result's shape")
