"""The rule for depthwise convolutions on Trainium."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import s_tir, tirx

from ...neuron.machine import Machine
from ...neuron.trace import ITEMSIZE
from ..choice import NO_CONVOLUTION, Choice, not_fused
from .depthwise_blocks import ChannelConv, find_channel_conv
from .depthwise_tiles import IMAGE, IMAGES, TILE, Tiling, scheduled
from .rule import NeuronRule
from .tiles import best

#: Columns of a tile, so that several tiles are in flight; a transfer of 8 KiB a partition in
#: float32 is long enough for the full bandwidth (source: AWS Neuron's DMA bandwidth guide).
COLUMNS = 2048

#: Columns that are computed together where the results are stored in parts.
PART = 1024
#: Taps in PSUM at most: each takes a part of it twice.
MOST_ON_SCALAR = 3


class DepthwiseConv1d(NeuronRule):
    """Schedules a depthwise convolution along one dimension and what follows it, for Trainium.

    Channels are on partitions, images and columns along them. The sum starts on the scalar engine,
    with the bias, and goes on on the vector engine. How large tiles and parts are is decided by the
    latency model, among a few candidates that pass the checker.

    Parameters
    ----------
    finite : bool
        Whether data and weights are known to be finite. Then the tensor engine may compute some of
        the taps, as products with diagonal matrices: 0 times infinity would be NaN there.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> rule = schedules.neuron.DepthwiseConv1d(finite=True)
    >>> sch = rule.apply(workloads.depthwise_conv1d(8, 512, 2048, 3), "trn1")
    >>> neuron.emit(sch).predict("trn1").latency_ms < 0.26
    True
    """

    def __init__(self, finite: bool = False) -> None:
        self.finite = finite

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            conv = find_channel_conv(func)
        except s_tir.ScheduleError as error:
            return Choice("", not_fused(error))
        if conv is None:
            return Choice("", NO_CONVOLUTION)
        found = tilings(conv, core, self.finite)
        return best(core, ((tiling.said(), scheduled(conv, tiling)) for tiling in found))


def tilings(conv: ChannelConv, core: Machine, finite: bool) -> Iterator[Tiling]:
    """Yield candidates, plain ones first.

    - `conv`: the convolution to cut into tiles.
    - `core`: where.
    - `finite`: whether taps may be products of matrices.
    """
    partitions = channels_of_a_tile(conv.channels, core.partitions)
    width = conv.conv.columns
    count = -(-width // COLUMNS)
    columns = -(-width // count)
    number = 1
    for axis in conv.images[-1:]:
        number = int(axis.dom.extent)
    images = max(1, min(number, COLUMNS // columns))
    # Three images in flight, in at most half of SBUF.
    rest = -(-conv.channels // partitions)
    loaded = rest * conv.reach * ITEMSIZE[conv.dtype]
    whole = count == 1 and images == 1 < number and 3 * loaded <= core.sbuf_bytes // 2
    loads = [TILE] + [IMAGE] * whole
    # Beside all images there is room for results that wait to be stored.
    if whole and conv.images == conv.images[-1:] and 4 * number * loaded <= 3 * core.sbuf_bytes:
        loads.append(IMAGES)
    tensor = finite and conv.channels % partitions == 0 and images == 1
    for on_tensor in range(conv.conv.taps + 1) if tensor else (0,):
        for part in sorted({columns, min(columns, PART)}, reverse=True):
            for each in loads:
                yield Tiling(partitions, images, columns, part, on_tensor, each)
    on_scalar = min(conv.conv.taps - 1, 2)
    sums = 2 * 4 * min(columns, PART) * images
    if on_scalar > 0 and sums * on_scalar <= core.psum_bytes:
        yield Tiling(partitions, images, columns, min(columns, PART), on_scalar=on_scalar)


def channels_of_a_tile(channels: int, most: int) -> int:
    """Return how many channels are computed at once.

    As many as possible that divide them, unless tiles of nearly the same size, of which the last
    one is smaller, could be larger by more than a third.

    >>> [channels_of_a_tile(c, 128) for c in (96, 512, 200, 131)]
    [96, 128, 100, 66]
    """
    divisor = max(n for n in range(1, most + 1) if channels % n == 0)
    balanced = -(-channels // -(-channels // most))
    return divisor if 4 * divisor >= 3 * balanced else balanced
