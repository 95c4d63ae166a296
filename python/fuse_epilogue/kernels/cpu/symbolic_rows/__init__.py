"""Functions of symbolic sizes, by kernels for constant numbers of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.target import Target

from ....recognize.stages import read_program
from ....recognize.windowed import read_windowed
from ....rewrites.branches import with_branches
from ....tir.walk import handle
from ...scheduled import Scheduled, Way
from .. import contraction
from .assembly import joined
from .row_axes import RowAxes, row_axes

#: Rows of a product of matrices that are computed together: the weights are read once for them.
PRODUCT_ROWS = (32, 16, 8, 4, 2, 1)
#: The same of a convolution, whose columns are computed together: the columns share a window, and
#: tiles of 4, 6 or 12 of them fill the registers.
WINDOW_ROWS = (24, 12, 4, 1)
#: Elements of a block of rows of other functions, and the most rows of it.
ELEMENTS, MOST_ROWS = 4096, 1024
#: How many times fewer rows the next smaller block has.
SHRINKAGE = 8
#: Rows of which a product must be faster than one by one, by how much.
TOGETHER, GAIN = 8, 1.1
#: Seconds of a row from which its own loops run in parallel, not those over the rows.
LONG_S = 50e-6

#: Schedules a function of constant sizes for a number of threads, some parameters of which are
#: constants at every call; None if it does not know it.
Part = Callable[[tirx.PrimFunc, int, frozenset[int]], Scheduled | None]


def schedule(
    func: tirx.PrimFunc, target: Target, threads: int, constants: frozenset[int], part: Part
) -> Scheduled | None:
    """Schedule a function whose symbolic sizes are those of independent axes.

    - `func`: not scheduled.
    - `target`: target of kind "llvm".
    - `threads`: number of threads that parallel loops are made for.
    - `constants`: indices of the parameters that are constants at every call.
    - `part`: schedules the function for a constant number of rows.
    - Returns: None if a symbolic size is that of another axis, or `part` does not know the
      function. No time is predicted: it depends on the sizes.
    """
    windowed = read_windowed(func)
    if windowed is None:
        return None
    axes = row_axes(windowed.axes)
    if windowed.buffer is not None and not any(axes.windows_of(windowed.buffer)):
        return None
    if not all(axes.is_in_one_piece(each) or axes.can_be_copied(each) for each in axes.buffers):
        return None
    # Kernels have no parameters that are sizes, and may have a padded one.
    place_of = {handle(each): at for at, each in enumerate(func.params)}
    places = [place_of.get(handle(each)) for each in axes.buffers]
    fixed = frozenset(at for at, place in enumerate(places) if place in constants)
    parts = _Parts(axes, target, 1 if axes.has_windows else threads, fixed, part)
    one = parts.of(1)
    if one is None:
        return None
    kernels, parallel = parts.of_product(one), False
    if kernels is None and one.predicted_s < LONG_S:
        kernels = parts.of_rows()
        parallel = threads > 1 and kernels is not None
    kernels = kernels or {1: one}
    first = next(iter(kernels.values()))
    if any(each.packing != first.packing for each in kernels.values()):
        kernels, first, parallel = {1: one}, one, False
    made = joined(
        func,
        axes,
        windowed.element,
        {rows: each.func for rows, each in kernels.items()},
        frozenset(first.packing),
        threads > 1 if axes.has_windows else parallel,
    )
    packing = {
        place: each for at, each in first.packing.items() if (place := places[at]) is not None
    }
    each = f": {first.ways[0].text}" if first.ways else ""
    way = Way(f"blocks of {', '.join(map(str, kernels))} rows{each}", 0.0)
    return Scheduled(made, f"rows of {first.kind}", first.fusion, 0.0, packing, ways=(way,))


@dataclass(frozen=True)
class _Parts:
    """Kernels for constant numbers of rows."""

    axes: RowAxes
    target: Target
    threads: int
    constants: frozenset[int]
    part: Part

    def of(self, rows: int, threads: int | None = None) -> Scheduled | None:
        """Return the kernel for a number of rows, None if nothing knows the function."""
        count = self.threads if threads is None else threads
        return self.part(self.axes.function(rows), count, self.constants)

    def of_product(self, one: Scheduled) -> dict[int, Scheduled] | None:
        """Return kernels of a contraction, packed alike; None if the function is something else."""
        if self.axes.inner is None:
            return None
        several = self.of(TOGETHER)
        if several is None or several.kind != "contraction":
            return None
        windows = self.axes.has_windows
        if not windows and several.predicted_s * GAIN > TOGETHER * one.predicted_s:
            return {1: one}
        counts = WINDOW_ROWS if windows else PRODUCT_ROWS
        found = [read_program(with_branches(self.axes.function(rows))) for rows in counts]
        programs = [each for each in found if each is not None]
        if len(programs) < len(found):
            return None
        made = contraction.packed_alike(programs, self.target, self.threads, self.constants)
        return None if made is None else dict(zip(counts, made, strict=True))

    def of_rows(self) -> dict[int, Scheduled] | None:
        """Return kernels for fewer and fewer rows, None if one is not known."""
        if self.axes.inner is None:
            return None
        rows = min(MOST_ROWS, 1 << math.ceil(math.log2(max(1, ELEMENTS / self.axes.elements))))
        kernels: dict[int, Scheduled] = {}
        while True:
            made = self.of(rows, 1)
            if made is None:
                return None
            kernels[rows] = made
            if rows == 1:
                return kernels
            rows = max(1, rows // SHRINKAGE)
