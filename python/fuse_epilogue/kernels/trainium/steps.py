"""The rewritings of whole functions for Trainium: a block for each operation of an engine.

Each is about a function that is prepared and fused; or `alone`, about what one block of a function
computes, while the other blocks stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx

from ...rewrites.step import NotRewritten
from . import attention_blocks, conv2d_blocks, depthwise_blocks, product_blocks, window_tiles
from .attention import Tiling as AttentionTiling
from .attention import find_attention
from .conv2d import Tiling as ConvTiling
from .conv2d import usual_tiling
from .movement import moved
from .outline import part_of, put_back
from .read_conv2d import find_conv2d
from .read_product import product_in
from .read_row_stages import find_row_stages
from .read_windows import find_windows
from .row_blocks import REST, RowWriter
from .row_reduction import elements_in, reduced_in
from .row_stages import rewritten as stages_rewritten
from .spread_rows import rewritten as spread_rewritten
from .stream_conv import find_stream
from .stream_tiles import rewritten as stream_rewritten
from .stream_update import rewritten as update_rewritten
from .tiles import BANK, PARTITIONS
from .windows import Tiling as WindowTiling
from .windows import most_rows


def product(func: tirx.PrimFunc, block: str, alone: bool) -> tirx.PrimFunc:
    """Rewrite a product of matrices, see :mod:`.product_blocks`."""
    part = _part(func, block, alone)
    found = _found(product_in, part, block, "one product of two matrices in float32")
    return put_back(func, part, product_blocks.rewritten(found))


def product_by_dma(func: tirx.PrimFunc, block: str, alone: bool) -> tirx.PrimFunc:
    """Rewrite a product whose matrices are transposed while they are loaded."""
    part = _part(func, block, alone)
    found = _found(product_in, part, block, "one product of two matrices in float32")
    if not product_blocks.transposed_by_dma(found):
        raise NotRewritten(
            "transfers transpose only matrices of 16 bits that lie the other way round"
        )
    return put_back(func, part, product_blocks.rewritten(found, by_dma=True))


def rows(func: tirx.PrimFunc, block: str, alone: bool) -> tirx.PrimFunc:
    """Rewrite a reduction of rows, see :mod:`.row_blocks`."""
    part = _part(func, block, alone)
    found = _found(reduced_in, part, block, "one sum or maximum for each row of a matrix")
    return put_back(func, part, RowWriter(found).write())


def elements(func: tirx.PrimFunc, block: str, loops: int, alone: bool) -> tirx.PrimFunc:
    """Rewrite elementwise work, in n loops, see :mod:`.row_blocks`."""
    part = _part(func, block, alone)
    found = _found(elements_in, part, block, "computed element by element")
    _check_loops(len(found.matrices) + 2, loops)
    return put_back(func, part, RowWriter(found, REST if alone else "").write())


def row_stages(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    """Rewrite reductions of the same rows and what is between them, see :mod:`.row_stages`."""
    return put_back(func, func, stages_rewritten(func))


def spread_rows(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    """Rewrite the same with the columns of a row on all partitions, see :mod:`.spread_rows`."""
    return put_back(func, func, spread_rewritten(find_row_stages(func)))


def attention(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    """Rewrite attention in tiles, see :mod:`.attention_blocks`."""
    return put_back(func, func, attention_blocks.rewritten(find_attention(func), AttentionTiling()))


def attention_tiles(
    func: tirx.PrimFunc, _: str, pipelined: int, together: int, by_vector: bool
) -> tirx.PrimFunc:
    """Rewrite attention in other tiles than the usual ones, see :mod:`.attention`."""
    return _attention(func, AttentionTiling(pipelined, together, by_vector))


def attention_rounded(
    func: tirx.PrimFunc, _: str, pipelined: int, together: int, by_vector: bool
) -> tirx.PrimFunc:
    """Rewrite attention in tiles, with shares in the type of the values of 16 bits."""
    return _attention(func, AttentionTiling(pipelined, together, by_vector, round_shares=True))


def _attention(func: tirx.PrimFunc, tiling: AttentionTiling) -> tirx.PrimFunc:
    found = find_attention(func)
    if tiling.round_shares and found.v.dtype == "float32":
        raise NotRewritten("its values are in float32: no share is rounded")
    most = BANK * (2 if tiling.round_shares else 1) // PARTITIONS
    if tiling.pipelined < 1:
        raise NotRewritten(f"tiles of queries must be at least 1, not {tiling.pipelined}")
    if not 1 <= tiling.together <= most:
        raise NotRewritten(
            f"transpositions done together must be from 1 to {most}, not {tiling.together}"
        )
    return put_back(func, func, attention_blocks.rewritten(found, tiling))


def update(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    """Rewrite the next columns of streams, see :mod:`.stream_update`."""
    return put_back(func, func, update_rewritten(func))


def stream(func: tirx.PrimFunc, _: str, by_vector: bool) -> tirx.PrimFunc:
    """Rewrite a convolution of a piece of streams, see :mod:`.stream_tiles`."""
    return put_back(func, func, stream_rewritten(find_stream(func), by_vector))


def conv2d(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    """Rewrite a 2-D convolution in tiles, see :mod:`.conv2d_blocks`."""
    found = find_conv2d(func)
    return put_back(func, func, conv2d_blocks.rewritten(found, usual_tiling(found)))


def conv2d_tiles(
    func: tirx.PrimFunc, _: str, rows: int, whole: bool, by_scalar: bool
) -> tirx.PrimFunc:
    """Rewrite a 2-D convolution in other tiles than the usual ones, see :mod:`.conv2d`."""
    found = find_conv2d(func)
    most = usual_tiling(found).rows
    if not 1 <= rows <= most:
        raise NotRewritten(f"a bank of PSUM has room for 1 to {most} rows of its sums, not {rows}")
    tiling = ConvTiling(rows, whole, by_scalar)
    return put_back(func, func, conv2d_blocks.rewritten(found, tiling))


def windows(func: tirx.PrimFunc, _: str, rows: int, by_vector: bool) -> tirx.PrimFunc:
    """Rewrite a reduction of windows in tiles, see :mod:`.window_tiles`."""
    found = find_windows(func)
    most = most_rows(found)
    if not 1 <= rows <= most:
        raise NotRewritten(f"SBUF has room for 1 to {most} rows of its results, not {rows}")
    return put_back(func, func, window_tiles.rewritten(found, WindowTiling(rows, by_vector)))


def movement(func: tirx.PrimFunc, _: str, transposed: bool) -> tirx.PrimFunc:
    """Rewrite a function that moves elements, see :mod:`.movement_blocks`."""
    return put_back(func, func, moved(func, transposed))


def conv(
    func: tirx.PrimFunc, block: str, partitions: int, on_tensor: int, loops: int, alone: bool
) -> tirx.PrimFunc:
    """Rewrite a depthwise convolution, in n loops, see :mod:`.depthwise_blocks`."""
    return _conv(func, block, (partitions, on_tensor, 0), loops, alone)


def _conv(
    func: tirx.PrimFunc, block: str, taps: tuple[int, int, int], loops: int, alone: bool
) -> tirx.PrimFunc:
    partitions = taps[0]
    if not 1 <= partitions <= PARTITIONS:
        raise NotRewritten(f"a tile has from 1 to {PARTITIONS} channels, not {partitions}")
    part = _part(func, block, alone)
    found = _found(depthwise_blocks.conv_in, part, block, "a depthwise convolution in float32")
    _check_loops(found.loops(partitions), loops)
    try:
        return put_back(func, part, depthwise_blocks.rewritten(found, *taps))
    except ValueError as why:
        raise NotRewritten(str(why)) from why


def conv_taps(
    func: tirx.PrimFunc,
    block: str,
    partitions: int,
    on_tensor: int,
    on_scalar: int,
    loops: int,
    alone: bool,
) -> tirx.PrimFunc:
    """Rewrite a depthwise convolution with taps on the scalar engine; :mod:`.depthwise_blocks`."""
    return _conv(func, block, (partitions, on_tensor, on_scalar), loops, alone)


def _part(func: tirx.PrimFunc, block: str, alone: bool) -> tirx.PrimFunc:
    part = part_of(func, block) if alone else func
    if part is None:
        raise NotRewritten(f"'{block}' is not in one loop nest")
    return part


def _found(
    find: Callable[[s_tir.Schedule, Any], Any], func: tirx.PrimFunc, block: str, wanted: str
) -> Any:
    sch = s_tir.Schedule(func)
    found = find(sch, sch.get_sblock(block))
    if found is None:
        raise NotRewritten(f"what '{block}' computes, with what is fused with it, is not {wanted}")
    return found


def _check_loops(own: int, wanted: int) -> None:
    if own != wanted:
        raise NotRewritten(f"it would be written in {own} loops, not in {wanted}")
