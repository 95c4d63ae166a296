"""The seven kernels of a published study, as seven schedules of one workload.

"How we made AWS Trainium 17x faster (for conv1d)", Autocomp, UC Berkeley SLICE lab, November 2025:
depthwise conv1d, N = 8, C = 512, W = 2048, F = 3, one column of zeros on each side, float32, no
bias, on one NeuronCore of a trn1.2xlarge; the slowest of 10 runs after 2 warm-ups.

What is known of that run's compiler is part of the schedules: it merged four sums into one in step
5, and computed 128 columns with one multiply and one sum in step 6. Three things are our reading of
it: zeros come from the GpSimd engine; the zeros that the study's text puts into output tiles, all
of which are overwritten, are left out (on the vector engine they would take 0.06 ms, and the
published 0.461 ms has no room for both fills of step 6); and as SBUF cannot hold the whole input
and output, as steps 0 to 2 ask, their tiles go through HBM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from ...workloads import depthwise_conv1d
from .tiles import mark

N, C, W, F = 8, 512, 2048, 3
#: Columns that gather in PSUM in step 4: a bank of float32.
BLOCK = 512
#: Columns of which the sums are one instruction, as is known of the run's compiler.
MERGED = {5: 4, 6: 128}
_MERGEABLE = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Published:
    """A step of the study.

    - `what`: the change that it makes.
    - `latency_ms`: schedule of the kernel.
    - `multiplies`, `sums`: how many instructions of each: as published for steps 5 and 6, before
      those as in the program.
    - `multiplies_ms`, `sums_ms`: their latency, where it was published.
    """

    what: str
    latency_ms: float
    multiplies: int
    sums: int
    multiplies_ms: float | None = None
    sums_ms: float | None = None


#: The steps, by number.
PUBLISHED = (
    Published("baseline: all loaded, computed, stored", 8.007, 65536, 65536),
    Published("filter's index out of the column loop", 8.007, 65536, 65536),
    Published("no index helpers at the store", 8.010, 65536, 65536),
    Published("one loop nest: load, compute, store a tile", 7.934, 65536, 65536),
    Published("512 columns gather in PSUM", 5.602, 65536, 65536),
    Published("channels outside; filter in PSUM", 4.955, 65536, 16384, 3.84, 1.03),
    Published("128 columns in one instruction", 0.461, 512, 512, 0.2, 0.2),
)

#: The model does not explain these: what the run's compiler merged there was not published.
UNEXPLAINED = (4,)


def schedule(step: int, merged: int | None = None) -> s_tir.Schedule:
    """Return the schedule of a step.

    - `step`: 0 to 6.
    - `merged`: columns of which the sums are one instruction, a power of two up to 128; what is
      known of the run if None.
    - Returns: for :func:`fuse_epilogue.neuron.emit`.
    - Raises ValueError: there is no such step, or its columns cannot be merged so.
    """
    if type(step) is not int or not 0 <= step < len(PUBLISHED):
        raise ValueError(f"step must be from 0 to {len(PUBLISHED) - 1}, not {step!r}")
    if merged is not None and (step < 4 or merged not in _MERGEABLE):
        raise ValueError(
            f"merged must be one of {_MERGEABLE}, and only for steps 4 and later, not {merged!r}"
        )
    sch = s_tir.Schedule(depthwise_conv1d(N, C, W, F, bias=False))
    sums = sch.get_sblock("conv")
    # Every step multiplies a window with the filter, and sums up the products.
    products = sch.rfactor(sch.get_loops(sums)[-1], factor_axis=3)
    sch.set_scope(products, 0, "trn.sbuf")
    if step <= 2:
        # Moving an index or a helper array changes nothing that a schedule says.
        _all_at_once(sch, products, sums)
    else:
        _tile_by_tile(sch, products, sums, step, merged or MERGED.get(step, 1))
    zeros = sch.decompose_padding("pad", sch.get_loops("pad")[2])
    sch.annotate(zeros, "nki_engine", "gpsimd")
    return sch


def _all_at_once(sch: s_tir.Schedule, products: Any, sums: Any) -> None:
    """Load all, compute all, store all; what SBUF has no room for goes through HBM."""
    pad = sch.get_sblock("pad")
    spilled = sch.cache_write(pad, 0, "trn.sbuf")
    image = sch.cache_read(products, 0, "trn.sbuf")
    sch.cache_read(products, 1, "trn.sbuf")
    stored = sch.cache_write(sums, 0, "global")
    result = sch.cache_write(sums, 0, "trn.sbuf")
    back = sch.cache_read(stored, 0, "trn.sbuf")
    _, tile, _, _ = _channels(sch, spilled)
    sch.compute_at(pad, tile)
    tile = _column_by_column(sch, products, sums)
    sch.compute_at(image, tile)
    sch.reverse_compute_at(result, tile)
    _, tile, _, _ = _channels(sch, stored)
    sch.compute_at(back, tile)


def _tile_by_tile(sch: s_tir.Schedule, products: Any, sums: Any, step: int, merged: int) -> None:
    """Load, compute and store one tile after the other."""
    sch.set_scope("pad", 0, "trn.sbuf")
    weights = sch.cache_read(products, 1, "trn.sbuf")
    result = sch.cache_write(sums, 0, "trn.sbuf")
    if step == 3:
        tile = _column_by_column(sch, products, sums)
        sch.reverse_compute_at(result, tile)
    elif step == 4:
        gathered = sch.cache_write(sums, 0, "trn.psum")
        tile, block = _in_groups(sch, products, sums, merged, BLOCK)
        sch.reverse_compute_at(gathered, block)
        sch.reverse_compute_at(result, block)
    else:
        filters = sch.cache_read(products, 1, "trn.psum")
        image, _ = _in_groups(sch, products, sums, merged, W, wide=step == 6)
        channels, tile = sch.get_loops(sums)[:2]
        sch.reorder(tile, channels)
        tile, channels = channels, tile
        sch.compute_at(filters, channels)
        sch.compute_at(weights, channels)
        sch.reverse_compute_at(result, tile)
        sch.compute_at("pad", tile)
        return
    sch.compute_at("pad", tile)
    sch.compute_at(weights, tile)


def _channels(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """Split the channels; return the loops over images, tiles, channels of a tile, and the rest."""
    image, channel, *rest = sch.get_loops(block)
    tile, inner = sch.split(channel, [C // 128, 128])
    return [image, tile, inner, rest]


def _column_by_column(sch: s_tir.Schedule, products: Any, sums: Any) -> Any:
    """Compute one column after the other; return the loop over tiles."""
    _, tile, channel, (column, tap) = _channels(sch, sums)
    sch.reorder(column, channel, tap)
    mark(sch, channel, tap)
    sch.compute_at(products, column)
    tap, channel = sch.get_loops(products)[-2:]
    sch.reorder(channel, tap)
    mark(sch, channel, tap)
    return tile


def _in_groups(
    sch: s_tir.Schedule, products: Any, sums: Any, merged: int, block: int, wide: bool = False
) -> tuple[Any, Any]:
    """Sum several columns at once, and multiply them one by one, or at once where it is `wide`.

    Returns the loops over tiles and over blocks of columns.
    """
    _, tile, channel, (column, tap) = _channels(sch, sums)
    blocks, groups, column = sch.split(column, [W // block, block // merged, merged])
    sch.reorder(blocks, groups, channel, column, tap)
    mark(sch, channel, column, tap)
    sch.compute_at(products, groups)
    tap, channel, *column = sch.get_loops(products)[-3 if merged > 1 else -2 :]
    if wide:
        sch.reorder(channel, *column, tap)
        mark(sch, channel, *column, tap)
    else:
        sch.reorder(*column, channel, tap)
        mark(sch, channel, tap)
    return tile, blocks
