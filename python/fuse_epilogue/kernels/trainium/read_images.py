"""Reads what 2-D convolutions, 2-D depthwise convolutions and poolings have in common.

    out[n, c, h, w] = f(reduction of x[n, .., h * stride + kh * dilation, ..])

`x` may be a padded image, which another stage computes.
"""

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
from .tiles import FLOATS, is_fixed


@dataclass(frozen=True)
class Images:
    """A reduction of windows of images in layout NCHW; expressions are in the axes of its results.

    - `image`, `out_channel`, `row`, `column`: the axes of the result, in its order.
    - `tap_row`, `tap_column`: the axes of a window, which are reduced.
    - `shape`: shape of the images with their padding.
    - `strides`, `dilations`: values for rows and columns.
    - `padded` (Expr): an element of an image, in `places`.
    - `sum` (tvm.ir.Var): a finished reduction in `result`.
    - `result`: Expr.
    - `output`: tvm.tirx.Buffer.
    """

    func: tirx.PrimFunc
    image: Axis
    out_channel: Axis
    row: Axis
    column: Axis
    tap_row: Axis
    tap_column: Axis
    shape: tuple[int, ...]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padded: Any
    places: tuple[Any, ...]
    sum: Any
    result: Any
    output: Any

    @property
    def dtype(self) -> str:
        """Type of the images."""
        return str(self.padded.ty.dtype)

    @property
    def axes(self) -> tuple[Axis, Axis, Axis, Axis]:
        """The axes of the result, in its order."""
        return self.image, self.out_channel, self.row, self.column

    @property
    def others(self) -> dict[str, Any]:
        """The loads that results depend on besides reductions, by their text."""
        return {str(load): load for load in loads(self.result)}

    def rows_for(self, rows: Any) -> Any:
        """Return how many rows of an image some rows of the result need."""
        return (rows - 1) * self.strides[0] + (self.tap_row.extent - 1) * self.dilations[0] + 1


def one_reduction(func: tirx.PrimFunc, refusal: str) -> tuple[Program, int]:
    """Return a function as stages, and the place of the only one that reduces.

    - Raises NotRewritten: there is none, or several; `refusal` says so. Or the function has several
      results, such as the padded image or the sums: the kernels write one.
    """
    program = read_program(func) if is_fixed(func) else None
    places = [] if program is None else [at for at, s in enumerate(program.stages) if s.reduced]
    if program is None or len(places) != 1:
        raise NotRewritten(refusal)
    if len(program.outputs) > 1:
        raise NotRewritten("it has several results")
    return program, places[0]


def is_at(load: Any, axes: Sequence[Axis]) -> bool:
    """Whether the first indices of a load are some axes; one of a single value may be 0."""
    return len(load.indices) == 4 and all(
        same(index, axis.var) or (axis.extent == 1 and isinstance(index, prim.IntImm))
        for index, axis in zip(load.indices, axes, strict=False)
    )


def fields_of(
    func: tirx.PrimFunc, program: Program, place: int, x: Any, taps: Sequence[Axis]
) -> dict[str, Any]:
    """Return the fields of :class:`Images` by name, for the reduction at a place of a program.

    - `x` (tvm.ir.TensorLoad): what it reads of an image.
    - `taps`: axes of its windows, for rows and columns.
    - Raises NotRewritten: it reads or computes something that cannot be scheduled.
    """
    sums = program.stages[place]
    before = _padding_before(program, place)
    steps = [_step_of(x.indices[2 + at], sums.axes[2 + at], taps[at]) for at in range(2)]
    total = tirx.Var("sum", str(sums.output.dtype))
    output, result = _followed(program, place, total)
    padded, places = _image_of(x, before, str(sums.axes[2].var.ty.dtype))
    return {
        "func": func,
        **dict(zip(("image", "out_channel", "row", "column"), sums.axes, strict=True)),
        **dict(zip(("tap_row", "tap_column"), taps, strict=True)),
        "shape": tuple(int(size) for size in x.source.ty.shape),
        "strides": tuple(stride for stride, _ in steps),
        "dilations": tuple(dilation for _, dilation in steps),
        "padded": padded,
        "places": places,
        "sum": total,
        "result": result,
        "output": output,
    }


def _padding_before(program: Program, place: int) -> list[Stage]:
    """Return the stage that pads what the reduction reads, if there is one.

    - Raises NotRewritten: something else comes before the reduction.
    """
    before = [s for s in program.stages[:place] if program.stages[place].reads(s.output)]
    if len(before) != place or place > 1:
        raise NotRewritten("something other than padding comes before its reduction")
    return before


def _step_of(index: Any, own: Axis, tap: Axis) -> tuple[int, int]:
    """Return stride and dilation of an index of the image."""
    found = affine_of(index, [own.var, tap.var])
    if found is None or found.constant != 0:
        raise NotRewritten("its windows do not have a constant stride and dilation")
    stride = found.factors[0] if own.extent > 1 else 1
    dilation = found.factors[1] if tap.extent > 1 else 1
    if stride < 1 or dilation < 1:
        raise NotRewritten("its windows do not have a constant stride and dilation")
    return stride, dilation


def _followed(program: Program, place: int, sum_var: Any) -> tuple[Any, Any]:
    """Return the output and the value that is stored in it, in the axes of the sums."""
    sums = program.stages[place]
    if place == len(program.stages) - 1:
        if not program.is_param(sums.output):
            raise NotRewritten("its result is not an argument of the function")
        return sums.output, sum_var
    small = inlined(program, lambda stage, readers: not any(each.reduced for each in readers))
    last = small.stages[-1]
    own = [load for load in last.loads if same(load.source, sums.output)]
    fits = len(last.axes) == 4 and [a.extent for a in last.axes] == [a.extent for a in sums.axes]
    if len(small.stages) != place + 2 or not own or not fits or not program.is_param(last.output):
        raise NotRewritten("its epilogue does not compute one element from each sum")
    if not all(is_at(load, last.axes) for load in own):
        raise NotRewritten("its epilogue does not compute one element from each sum")
    value = replace(
        last.value, TensorLoad, lambda load: sum_var if same(load.source, sums.output) else load
    )
    table = {old.var: new.var for old, new in zip(last.axes, sums.axes, strict=True)}
    return last.output, substitute(value, table)


def _image_of(x: Any, padding: Sequence[Stage], index: str) -> tuple[Any, tuple[Any, ...]]:
    """Return an element of the image, with its padding, and the variables for its place."""
    if padding:
        return padding[0].value, tuple(axis.var for axis in padding[0].axes)
    places = tuple(tirx.Var(f"i{at}", index) for at in range(4))
    return tirx.BufferLoad(x.source, list(places)), places


def check_other(found: Images, load: Any) -> None:
    """Refuse what is neither one value of a channel nor of the shape of the result."""
    name = str(load.source.name)
    if str(load.source.ty.dtype) not in FLOATS:
        raise NotRewritten(f"'{name}' holds {load.source.ty.dtype}")
    if is_at(load, found.axes):
        return
    used = [axis for axis in found.axes if uses(load, axis.var)]
    plain = all(
        isinstance(index, prim.IntImm) or same(index, found.out_channel.var)
        for index in load.indices
    )
    if not plain or any(axis is not found.out_channel for axis in used):
        raise NotRewritten(f"'{name}' has neither a value for a channel nor the result's shape")
