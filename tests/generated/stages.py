"""What the stages of a program look like: types, extents, where their elements lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .layouts import ALL_READS, ALL_WRITES, Dims
from .spec import Epilogue, Program


@dataclass(frozen=True)
class Stage:
    """The result of the reduction, or the output of an epilogue.

    Attributes
    ----------
    dtype : str
    dims : tuple
        Its extents, as those who read it see them.
    shape : tuple
        Of its buffer, which may be larger.
    place : Callable
        From an element to its place in the buffer.
    """

    dtype: str
    dims: Dims
    shape: Dims
    place: Callable[[Dims], Dims]


def stages_of(program: Program, spatial: Sequence[Any] | None = None) -> list[Stage]:
    """Return the stages, the reduction's result first.

    Parameters
    ----------
    program : Program
    spatial : sequence, optional
        The extents of the reduction's spatial axes, where they are not the numbers in the program.
    """
    reduction = program.reduction
    extents = tuple(reduction.spatial if spatial is None else spatial)
    row = ALL_WRITES[reduction.layout]
    dims = row.dims(extents)
    stages = [Stage(reduction.accumulator, dims, row.shape(dims), row.place)]
    for epilogue in program.epilogues:
        axes = ALL_READS[epilogue.read].axes(stages[epilogue.stage].dims)
        row = ALL_WRITES[epilogue.write]
        dims = row.dims(axes)
        shape, place = row.shape(dims), row.place
        if epilogue.alias == "shifted bias":
            shape = (shape[0] + 1, *shape[1:])
        if epilogue.alias == "source":
            # In the first column of the reduction's source.
            shape, place = (*axes, reduction.reduce[0]), _first_column
        stages.append(Stage(epilogue.dtype, dims, shape, place))
    return stages


def _first_column(element: Dims) -> Dims:
    return (*element, 0)


def axes_of(program: Program, epilogue: Epilogue) -> Dims:
    """Return the extents of the axes of an epilogue, which need not be one of the program's."""
    return ALL_READS[epilogue.read].axes(stages_of(program)[epilogue.stage].dims)
