"""Instructions that fill, copy and rearrange."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import Refused
from . import shapes
from .arithmetic import BINARY, REDUCERS, holds, store, widened
from .execute import like, run_copy, run_memset
from .row import ASSUMED, Arguments, Cost, Instruction, parameters

_HINTS = ("name", "priority", "oob_mode", "unique_indices", "num_descriptors", "dma_engine")


def fit_shuffle(args: Arguments) -> None:
    """Check a shuffle of partitions: a mask of 32 numbers for each group of 32 partitions."""
    mask = args["shuffle_mask"]
    if len(mask) != 32 or any(type(n) is not int or not (n == 255 or 0 <= n < 32) for n in mask):
        raise Refused("shapes", "shuffle_mask has 32 items, partitions 0 to 31 or 255 for none")
    shapes.free_like("src", args["src"], args["dst"])


def run_shuffle(dst: np.ndarray, args: Arguments) -> None:
    """Give each partition what another one of its group of 32 has."""
    src = args["src"].copy()
    for group in range(0, dst.shape[0], 32):
        for at, source in enumerate(args["shuffle_mask"]):
            if source == 255 or group + at >= dst.shape[0]:
                continue
            if group + source >= src.shape[0]:
                raise Refused(
                    "out-of-bounds",
                    f"shuffle_mask names partition {group + source} of {src.shape[0]}",
                )
            dst[group + at] = src[group + source].reshape(dst.shape[1:])


def fit_dma_transpose(args: Arguments) -> None:
    """Check a transposition by transfers: the first and the last dimension change places."""
    dst, src = args["dst"], args["src"]
    if args["axes"] is not None and tuple(args["axes"]) != tuple(reversed(range(len(src.shape)))):
        if len(args["axes"]) != len(src.shape) or sorted(args["axes"]) != list(
            range(len(src.shape))
        ):
            raise Refused("shapes", f"axes {args['axes']} of a tensor of shape {src.shape}")
    expected = tuple(src.shape[at] for at in transposed_axes(args))
    if shapes.significant(dst.shape) != shapes.significant(expected):
        raise Refused("shapes", f"dst has shape {dst.shape}, src transposed {expected}")
    if dst.dtype != src.dtype:
        raise Refused("transpose", "dst has another type than src")


def transposed_axes(args: Arguments) -> tuple[int, ...]:
    """Return the order of the axes: by default, the first and the last change places."""
    if args["axes"] is not None:
        return tuple(args["axes"])
    rank = len(args["src"].shape)
    return (rank - 1, *range(1, rank - 1), 0) if rank > 1 else (0,)


def run_dma_transpose(dst: np.ndarray, args: Arguments) -> None:
    """Transpose bit for bit."""
    dst[...] = np.transpose(args["src"], transposed_axes(args)).reshape(dst.shape)


def fit_compute(args: Arguments) -> None:
    """Check a reduction of transfers: as many elements in each."""
    if not args["srcs"]:
        raise Refused("shapes", "srcs must hold at least one tile")
    for at, src in enumerate(args["srcs"]):
        if math.prod(src.shape) != math.prod(args["dst"].shape):
            raise Refused("shapes", f"srcs[{at}] has shape {src.shape}, dst {args['dst'].shape}")
    scales = args["scales"]
    if scales is not None and len(scales) != len(args["srcs"]):
        raise Refused("shapes", f"{len(scales)} scales for {len(args['srcs'])} sources")


def run_compute(dst: np.ndarray, args: Arguments) -> None:
    """Reduce the sources, element by element."""
    scales = args["scales"] or (1.0,) * len(args["srcs"])
    parts = [
        widened(src).reshape(dst.shape) * np.float32(scale)
        for src, scale in zip(args["srcs"], scales, strict=True)
    ]
    store(dst, REDUCERS[args["reduce_op"]](np.stack(parts), axis=0))


def fit_predicated(args: Arguments) -> None:
    """Check a copy of some elements."""
    dst, src, predicate = args["dst"], args["src"], args["predicate"]
    if not isinstance(src, (int, float)):
        shapes.same("src", src, dst)
        if src.dtype != dst.dtype:
            raise Refused("operand-types", f"src is {src.dtype}, dst {dst.dtype}")
    if str(predicate.dtype) not in ("uint8", "uint16", "uint32"):
        raise Refused("operand-types", f"predicate is {predicate.dtype}, not uint8, 16 or 32")
    shapes.same("predicate", args["predicate"], dst)
    if isinstance(src, (int, float)) and "int" in dst.dtype and not holds(dst.dtype, src):
        raise Refused("operand-types", f"{src} is not a value of {dst.dtype}")


def run_predicated(dst: np.ndarray, args: Arguments) -> None:
    """Copy where the predicate is not zero."""
    where = like(args["predicate"], dst) != 0
    if args["reverse_pred"]:
        where = ~where
    new = np.empty_like(dst)
    if isinstance(args["src"], np.ndarray):
        new[...] = like(args["src"], dst)  # of the same type: bit for bit
    else:
        run_memset(new, {"value": args["src"]})
    dst[where] = new[where]


def pattern_values(args: Arguments, partitions: int) -> np.ndarray:
    """Return offset + channel_multiplier * partition + what the pattern adds for each element."""
    values: Any = np.zeros((), np.int64)
    for step, count in args["pattern"]:
        values = values[..., None] + step * np.arange(count)
    rows = np.arange(partitions) * args["channel_multiplier"] + args["offset"]
    return np.asarray(rows.reshape((-1,) + (1,) * values.ndim) + values)


def fit_pattern(args: Arguments) -> None:
    """Check that a pattern counts the destination's elements."""
    count = math.prod(n for _, n in args["pattern"])
    free = math.prod(args["dst"].shape[1:])
    if count != free:
        raise Refused("shapes", f"pattern counts {count} elements, dst has {free} in a partition")


def fit_affine_select(args: Arguments) -> None:
    """Check a choice by the place: of floats, or of integers that float32 has."""
    fit_pattern(args)
    shapes.same("on_true_tile", args["on_true_tile"], args["dst"])
    for name in ("on_true_tile", "dst"):
        if args[name].dtype in ("int32", "uint32"):
            raise Refused(
                "operand-types",
                f"{name} is {args[name].dtype}: affine_select takes floats, and integers of 8 or "
                "16 bits",
            )


def run_iota(dst: np.ndarray, args: Arguments) -> None:
    """Fill with an affine function of the place."""
    store(dst, pattern_values(args, dst.shape[0]).reshape(dst.shape))


def run_affine_select(dst: np.ndarray, args: Arguments) -> None:
    """Choose by comparing an affine function of the place with zero."""
    values = pattern_values(args, dst.shape[0]).reshape(dst.shape)
    chosen = BINARY[args["cmp_op"]](values, 0)
    store(dst, np.where(chosen, widened(like(args["on_true_tile"], dst)), args["on_false_value"]))


ROWS = (
    Instruction(
        "dma_copy",
        ("dma",),
        parameters("dst:dst src:tile dge_mode:dge_mode", dge_mode="unknown"),
        shapes.fit_dma,
        run_copy,
        ignored=(*_HINTS, "engine"),
        hbm=True,
    ),
    Instruction(
        "dma_transpose",
        ("dma",),
        parameters("dst:dst src:tile axes:values", axes=None),
        fit_dma_transpose,
        run_dma_transpose,
        ignored=(*_HINTS, "dtype", "dge_mode"),
        since="trn2",
        hbm=True,
    ),
    Instruction(
        "dma_compute",
        ("dma",),
        parameters("dst:dst srcs:tiles reduce_op:reducer scales:values", scales=None),
        fit_compute,
        run_compute,
        ignored=_HINTS,
        hbm=True,
    ),
    Instruction(
        "memset",
        ("vector", "gpsimd"),
        parameters("dst:dst value:number"),
        shapes.fit_memset,
        run_memset,
    ),
    Instruction(
        "tensor_copy",
        ("vector", "scalar", "gpsimd"),
        parameters("dst:dst src:tile"),
        shapes.elementwise("src"),
        run_copy,
        ignored=("name", "dtype"),
    ),
    Instruction(
        "tensor_copy_predicated",
        ("vector",),
        parameters("dst:dst src:vector predicate:tile reverse_pred:flag", reverse_pred=False),
        fit_predicated,
        run_predicated,
        Cost(2.0, "AWS Neuron documentation, SDK 2.26, its estimated cost with all in SBUF"),
        reads_dst=lambda args: True,
    ),
    Instruction(
        "nc_stream_shuffle",
        ("vector",),
        parameters("dst:dst src:tile shuffle_mask:values"),
        fit_shuffle,
        run_shuffle,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "iota",
        ("gpsimd",),
        parameters(
            "dst:dst pattern:pattern offset:integer channel_multiplier:integer",
            offset=0,
            channel_multiplier=0,
        ),
        fit_pattern,
        run_iota,
        Cost(1.0, ASSUMED),
        ignored=("name", "dtype"),
    ),
    Instruction(
        "affine_select",
        ("gpsimd",),
        parameters(
            "dst:dst pattern:pattern channel_multiplier:integer on_true_tile:tile "
            "on_false_value:number cmp_op:op offset:integer",
            cmp_op="equal",
            offset=0,
        ),
        fit_affine_select,
        run_affine_select,
        Cost(1.0, ASSUMED),
    ),
)
