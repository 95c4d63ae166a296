"""The rewritings that are steps of a schedule, see :mod:`..rewrites.step`: what each one does.

Each checks for itself whether a function is one that it is for: a step may be replayed on any.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ..recognize.depthwise import find_depthwise_conv
from ..rewrites.fused_conv import FusedConv, find_fused_conv
from ..rewrites.padding import with_opaque_zeros
from ..rewrites.prepare import in_order, why_not_prepared
from ..rewrites.step import PREFIX, NotRewritten
from ..tir.build import with_unique_names
from .cpu.depthwise.borders import split_at_borders
from .cpu.depthwise.contiguous_conv import in_rows, streams
from .cpu.depthwise.loops import borders_of
from .cpu.depthwise.row_limits import why_not_rows
from .cpu.depthwise.words import VNNI, in_words, why_not_words
from .cpu.for_llvm import for_llvm
from .cuda import copies
from .cuda.depthwise import channels, elements, narrow
from .cuda.depthwise import contiguous_conv as thread_rows
from .trainium import steps as neuron
from .trainium.hoist_loads import once

#: Threads of a block that CUDA allows.
_THREADS = 1024
_NAME = re.compile(re.escape(PREFIX) + r"(\w+)\(((?:\w+=-?\d+(?:, )?)*)\)")


@dataclass(frozen=True)
class Rewriting:
    """The action of a step.

    - `parameters`: by their names, in the order of the step's text: int, or bool, which is 0 or 1
      there.
    - `make`: given a function, the name of a block and the parameters, returns the function
      rewritten, or raises :class:`..rewrites.step.NotRewritten`.
    """

    parameters: dict[str, type]
    make: Callable[..., tirx.PrimFunc]


def _prepared(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    made = in_order(func)
    if made is None:
        raise NotRewritten(why_not_prepared(func))
    return made


def _unique_names(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    return with_unique_names(func)


def _fused(func: tirx.PrimFunc, block: str) -> FusedConv:
    sch = s_tir.Schedule(func)
    fused = find_fused_conv(sch, sch.get_sblock(block))
    if fused is None:
        raise NotRewritten(
            f"it is not a depthwise convolution '{block}', alone or with one tail, in plain loops"
        )
    return fused


def _rows(
    func: tirx.PrimFunc, block: str, lanes: int, stream: bool, parallel: bool
) -> tirx.PrimFunc:
    if lanes & (lanes - 1):
        raise NotRewritten(f"the number of lanes must be a power of two, not {lanes}")
    fused = _fused(func, block)
    why = why_not_rows(fused, lanes)
    if why is not None:
        raise NotRewritten(f"not in rows: {why}")
    if stream and not streams(fused, lanes):
        raise NotRewritten("its result cannot be stored around the caches")
    return in_rows(func, fused, lanes, stream, parallel)


def _rows_of_words(
    func: tirx.PrimFunc, block: str, lanes: int, stream: bool, parallel: bool
) -> tirx.PrimFunc:
    fused = _fused(func, block)
    why = why_not_rows(fused, lanes * VNNI.count) or why_not_words(fused, lanes)
    if why is not None:
        raise NotRewritten(f"not in words: {why}")
    if stream and not streams(fused, lanes * VNNI.count):
        raise NotRewritten("its result cannot be stored around the caches")
    return in_words(func, fused, lanes, stream, parallel)


def _split_at_borders(func: tirx.PrimFunc, block: str, channel: int, rolled: bool) -> tirx.PrimFunc:
    found = find_depthwise_conv(_blocks(func)[block])
    if found is None:
        raise NotRewritten(f"its block '{block}' is not a depthwise convolution")
    if channel >= len(found.block.iter_vars):
        raise NotRewritten(f"'{block}' has no axis {channel}")
    borders = borders_of(found, channel, rolled)
    return split_at_borders(with_opaque_zeros(func, found), borders)


def _check_threads(parts: int, threads: int) -> None:
    if parts < 1 or not 1 <= threads <= _THREADS:
        raise NotRewritten(
            f"a thread must have at least 1 part, not {parts}, and a block from 1 to {_THREADS} "
            f"threads, not {threads}"
        )


def _cuda_rows(func: tirx.PrimFunc, block: str, vectors: int, threads: int) -> tirx.PrimFunc:
    _check_threads(vectors, threads)
    fused = _fused(func, block)
    rows = thread_rows.find_rows(fused)
    if rows is None:
        raise NotRewritten(f"threads cannot load rows of '{block}' in vectors")
    return thread_rows.in_rows(func, fused, rows, vectors, threads)


def _cuda_channels(func: tirx.PrimFunc, block: str, tile: int, threads: int) -> tirx.PrimFunc:
    _check_threads(tile, threads)
    fused = _fused(func, block)
    found = channels.find_channels(fused)
    made = None if found is None else channels.in_channels(func, fused, found, tile, threads)
    if made is None:
        raise NotRewritten(f"threads cannot load channels of '{block}' in vectors")
    return made


def _cuda_elements(func: tirx.PrimFunc, block: str, threads: int) -> tirx.PrimFunc:
    _check_threads(1, threads)
    return elements.in_elements(func, _fused(func, block), threads)


def _wrapping(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    return narrow.with_wrapping(func)


def _in_vectors(func: tirx.PrimFunc, _: str) -> tirx.PrimFunc:
    return for_llvm(func)


#: By name. The names and the parameters are in stored traces: they stay.
REWRITINGS: dict[str, Rewriting] = {
    # See rewrites.prepare: T.Let is gone, unread results are not computed, the reduction has
    # a loop for each of its axes, and every block a name of its own.
    "prepare": Rewriting({}, _prepared),
    # Every block has a name of its own.
    "unique_names": Rewriting({}, _unique_names),
    # See kernels.cpu.depthwise.contiguous_conv.
    "rows": Rewriting({"lanes": int, "stream": bool, "parallel": bool}, _rows),
    # See kernels.cpu.depthwise.words: the lanes are those of the sums.
    "rows_of_words": Rewriting({"lanes": int, "stream": bool, "parallel": bool}, _rows_of_words),
    # See kernels.cpu.depthwise.loops: the place of the axis of channels, -1 if there is none.
    "borders": Rewriting({"channel": int, "rolled": bool}, _split_at_borders),
    # See kernels.cpu.vector_math.
    "vector_functions": Rewriting({}, _in_vectors),
    # See kernels.cuda.depthwise: contiguous_conv, channels, elements, copies and narrow.
    "cuda_rows": Rewriting({"vectors": int, "threads": int}, _cuda_rows),
    "cuda_channels": Rewriting({"tile": int, "threads": int}, _cuda_channels),
    "cuda_elements": Rewriting({"threads": int}, _cuda_elements),
    "cuda_copies": Rewriting({}, copies.in_copies),
    "wrapping": Rewriting({}, _wrapping),
    # See kernels.trainium.steps.
    "neuron_product": Rewriting({"alone": bool}, neuron.product),
    "neuron_product_by_dma": Rewriting({"alone": bool}, neuron.product_by_dma),
    "neuron_rows": Rewriting({"alone": bool}, neuron.rows),
    "neuron_row_stages": Rewriting({}, neuron.row_stages),
    "neuron_spread_rows": Rewriting({}, neuron.spread_rows),
    "neuron_attention": Rewriting({}, neuron.attention),
    "neuron_attention_rounded": Rewriting(
        {"pipelined": int, "together": int, "by_vector": bool}, neuron.attention_rounded
    ),
    "neuron_attention_tiles": Rewriting(
        {"pipelined": int, "together": int, "by_vector": bool}, neuron.attention_tiles
    ),
    "neuron_conv2d": Rewriting({}, neuron.conv2d),
    "neuron_conv2d_tiles": Rewriting(
        {"rows": int, "whole": bool, "by_scalar": bool}, neuron.conv2d_tiles
    ),
    "neuron_windows": Rewriting({"rows": int, "by_vector": bool}, neuron.windows),
    "neuron_movement": Rewriting({"transposed": bool}, neuron.movement),
    "neuron_update": Rewriting({}, neuron.update),
    "neuron_stream": Rewriting({"by_vector": bool}, neuron.stream),
    "neuron_elements": Rewriting({"loops": int, "alone": bool}, neuron.elements),
    "neuron_conv": Rewriting(
        {"partitions": int, "on_tensor": int, "loops": int, "alone": bool}, neuron.conv
    ),
    "neuron_conv_taps": Rewriting(
        {"partitions": int, "on_tensor": int, "on_scalar": int, "loops": int, "alone": bool},
        neuron.conv_taps,
    ),
    "neuron_once": Rewriting({"loop": int}, once),
}


def rewritten(func: tirx.PrimFunc, block: Any, name: str) -> tuple[tirx.PrimFunc, Any] | str:
    """Return a function rewritten, for the core.

    - `block` (tvm.s_tir.SBlock): name of the function.
    - `name`: as it is in the trace: ``"fuse_epilogue.rows(lanes=16, stream=0, parallel=1)"``.
    - Returns: the function, and what blocks of the old one are in it; or why it is not rewritten.
    - Raises ValueError: there is no such rewriting, or it has other parameters.
    """
    rewriting, parameters = _read(name)
    before = _blocks(func)
    if block.name_hint not in before:
        return f"several of its blocks are named '{block.name_hint}'"
    try:
        made = rewriting.make(func, block.name_hint, *parameters)
    except NotRewritten as why:
        return str(why)
    after = _blocks(made)
    kept = {each: after[key] for key, each in before.items() if key in after}
    return made, {old: new for old, new in kept.items() if not old.same_as(new)}


def _read(name: str) -> tuple[Rewriting, list[int | bool]]:
    match = _NAME.fullmatch(name)
    rewriting = REWRITINGS.get(match[1]) if match else None
    if match is None or rewriting is None:
        known = ", ".join(REWRITINGS)
        raise ValueError(f"there is no rewriting '{name}', only with names {known}")
    values = dict(re.findall(r"(\w+)=(-?\d+)", match[2]))
    kinds = rewriting.parameters
    if list(values) != list(kinds) or any(
        kinds[key] is bool and value not in ("0", "1") for key, value in values.items()
    ):
        wanted = ", ".join(f"{key} ({kind.__name__})" for key, kind in kinds.items()) or "none"
        raise ValueError(f"the parameters of '{name}' must be: {wanted}")
    return rewriting, [kinds[key](int(value)) for key, value in values.items()]


def _blocks(func: tirx.PrimFunc) -> dict[str, Any]:
    """Return the blocks with a unique name, by their names."""
    found: dict[str, list[Any]] = {}

    def find(block: Any) -> None:
        found.setdefault(block.name_hint, []).append(block)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, find))
    return {name: blocks[0] for name, blocks in found.items() if len(blocks) == 1}
