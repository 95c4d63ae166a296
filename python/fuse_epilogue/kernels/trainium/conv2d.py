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

from tvm import s_tir, tirx

from ...neuron.machine import Machine
from ...neuron.trace import ITEMSIZE
from ...rewrites.step import NotRewritten, rewrite
from ..choice import Choice
from .read_conv2d import Convolution2d, find_conv2d
from .rule import TransposingRule
from .tiles import BANK, PARTITIONS, best

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
class Tiling:
    """The tiles of a convolution.

    - `rows`: rows of the result whose sums are in a bank of PSUM together.
    - `whole`: whether an image is loaded as a whole, not the rows of a block.
    - `by_scalar`: whether the scalar engine computes what follows the sums, not the usual one.
    """

    rows: int
    whole: bool
    by_scalar: bool = False


def usual_tiling(found: Convolution2d) -> Tiling:
    """Return a tiling that is good: as many rows as a bank holds, small images as a whole."""
    rows = max(1, min(found.row.extent, BANK // found.column.extent))
    tiles = math.ceil(found.channel.extent / PARTITIONS)
    width = found.shape[3] * ITEMSIZE[found.dtype] * tiles
    return Tiling(rows, width * found.shape[2] <= _WHOLE_IMAGE)


def scheduled(found: Convolution2d, tiling: Tiling | None = None) -> s_tir.Schedule:
    """Schedule a convolution, for :func:`fuse_epilogue.neuron.emit`."""
    sch = s_tir.Schedule(found.func)
    root = sch.get_sblock("root")
    if tiling is None or tiling == usual_tiling(found):
        rewrite(sch, root, "neuron_conv2d")
    else:
        rewrite(sch, root, "neuron_conv2d_tiles", **vars(tiling))
    return sch
