"""The rule for windows of each channel on Trainium: 2-D depthwise convolutions and poolings.

load the weights                               channels on partitions, several on each
for images, blocks of rows, tiles of channels:
    load the rows, with what pads them
    total = weights * windows, tap by tap; or the maximum of each row's windows, then of these
    y = f(total), store
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from ...neuron.machine import Machine
from ...rewrites.step import NotRewritten, rewrite
from ...tir.walk import uses
from ..choice import Choice
from .read_windows import Windows, find_windows
from .rule import NeuronRule
from .tiles import best

#: Bytes of a partition that the tiles of a block of rows may take.
BLOCK_BYTES = 64 * 1024


class Windows2d(NeuronRule):
    """Schedules a 2-D depthwise convolution or a pooling in layout NCHW and what follows it.

    Any window, stride, dilation and padding; one filter for each channel, with the sums in float32;
    for poolings the maximum, the minimum or the sum of a window. Several filters for a channel, and
    averages whose divisor depends on the place, are not known.

    Example
    -------
    >>> from tvm import te, topi
    >>> from fuse_epilogue import neuron, schedules
    >>> x, w = te.placeholder((1, 64, 28, 28)), te.placeholder((64, 1, 3, 3))
    >>> func = te.create_prim_func([x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)])
    >>> kernel = neuron.emit(schedules.neuron.Windows2d().apply(func, "trn2"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            found = match_windows(func)
        except NotRewritten as why:
            return Choice("", str(why))
        return best(core, ((str(each), scheduled(found, each)) for each in tilings(found)))


@dataclass(frozen=True)
class Tiling:
    """The tiles of windows.

    - `rows`: rows of the result in a block.
    - `by_vector`: whether the vector engine computes the first tap, too. The scalar engine, which
      does otherwise, begins no block before it has finished what follows the last one.
    """

    rows: int
    by_vector: bool

    def __str__(self) -> str:
        """Say it in words."""
        engine = "vector" if self.by_vector else "scalar"
        return f"blocks of {self.rows} rows, the first tap on the {engine} engine"


def match_windows(func: tirx.PrimFunc) -> Windows:
    """Return the windows of a function, of which SBUF holds a row at least.

    - Raises NotRewritten: it computes something else, or its rows are too long.
    """
    found = find_windows(func)
    if most_rows(found) == 0:
        raise NotRewritten(f"a row of its images takes more than {BLOCK_BYTES // 1024} KiB of SBUF")
    return found


def tilings(found: Windows) -> Iterator[Tiling]:
    """Yield candidates: as many rows as fit, and parts of them, so that several are in flight."""
    most = most_rows(found)
    for rows in sorted({most, -(-most // 2), -(-most // 4)}, reverse=True):
        yield Tiling(rows, False)
        if found.weight is not None:
            yield Tiling(rows, True)


def block_bytes(found: Windows, rows: Any) -> Any:
    """Return how many bytes of a partition the tiles of some rows of the result take.

    Images, and perhaps what their rows are combined to; sums, results and operands.
    """
    others = sum(uses_row(found, load) for load in found.others.values())
    width = 4 * max(found.shape[3], found.column.extent)
    return width * (2 * found.rows_for(rows) + rows * (2 + others))


def most_rows(found: Windows) -> int:
    """Return how many rows of the result a block has at most, 0 if not one fits."""
    least, step = (block_bytes(found, rows) for rows in (0, 1))
    fit = (BLOCK_BYTES - least) // (step - least)
    return max(0, min(int(found.row.extent), int(fit)))


def uses_row(found: Windows, load: object) -> bool:
    """Whether a load has a value for each result, not only for each channel."""
    return bool(uses(load, found.column.var, found.row.var, found.image.var))


def scheduled(found: Windows, tiling: Tiling) -> s_tir.Schedule:
    """Schedule windows, for :func:`fuse_epilogue.neuron.emit`."""
    sch = s_tir.Schedule(found.func)
    rewrite(sch, sch.get_sblock("root"), "neuron_windows", **vars(tiling))
    return sch
