"""Instructions that look for values and gather by index."""

from __future__ import annotations

import math

import numpy as np

from ..errors import Refused
from . import shapes
from .arithmetic import store, widened
from .row import ASSUMED, Arguments, Cost, Instruction, parameters


def _eight(name: str, args: Arguments) -> None:
    tile = args[name]
    if math.prod(tile.shape[1:]) != 8:
        raise Refused("shapes", f"{name} has eight elements in a partition, not {tile.shape[1:]}")


def fit_max8(args: Arguments) -> None:
    """Check a search for the eight largest: at least eight elements."""
    _eight("dst", args)
    free = math.prod(args["src"].shape[1:])
    if args["src"].shape[0] != args["dst"].shape[0] or not 8 <= free <= 16384:
        raise Refused("shapes", f"src has shape {args['src'].shape}, 8 to 16384 in a partition")


def run_max8(dst: np.ndarray, args: Arguments) -> None:
    """Return the eight largest of each partition, in descending order."""
    data = widened(args["src"]).reshape(dst.shape[0], -1)
    store(dst, -np.sort(-data, axis=1)[:, :8].reshape(dst.shape))


def fit_find8(args: Arguments) -> None:
    """Check a search for eight values."""
    _eight("dst", args)
    _eight("vals", args)
    if not args["dst"].shape[0] == args["vals"].shape[0] == args["data"].shape[0]:
        raise Refused("shapes", "dst, data and vals have as many partitions")


def places(data: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return where each value is first found, a place only once; -1 if it is nowhere."""
    found = np.full(values.shape, -1, np.int64)
    for row in range(len(data)):
        free = np.ones(data.shape[1], bool)
        for at, value in enumerate(values[row]):
            hits = np.flatnonzero((data[row] == value) & free)
            if hits.size:
                found[row, at] = hits[0]
                free[hits[0]] = False
    return found


def run_find8(dst: np.ndarray, args: Arguments) -> None:
    """Return the places of eight values."""
    rows = dst.shape[0]
    data, values = (widened(args[name]).reshape(rows, -1) for name in ("data", "vals"))
    found = places(data, values)
    if dst.dtype.kind == "u":
        found = np.where(found < 0, np.iinfo(dst.dtype).max, found)
    store(dst, found.reshape(dst.shape))


def fit_replace8(args: Arguments) -> None:
    """Check a replacement of eight values."""
    _eight("vals", args)
    shapes.same("data", args["data"], args["dst"])
    if args["dst_idx"] is not None and math.prod(args["dst_idx"].shape[1:]) != 8:
        raise Refused("shapes", f"dst_idx has shape {args['dst_idx'].shape}, eight in a partition")


def run_replace8(dst: np.ndarray, args: Arguments) -> None:
    """Replace the first places of eight values, and return these on demand."""
    rows = dst.shape[0]
    data, values = (widened(args[name]).reshape(rows, -1) for name in ("data", "vals"))
    found = places(data, values)
    result = data.copy()
    for row in range(rows):
        result[row, found[row][found[row] >= 0]] = np.float32(args["imm"])
    store(dst, result.reshape(dst.shape))
    if args["dst_idx"] is not None:
        index = args["dst_idx"]
        if index.dtype.kind == "u":
            found = np.where(found < 0, np.iinfo(index.dtype).max, found)
        store(index, found.reshape(index.shape))


def fit_gather(args: Arguments) -> None:
    """Check a gathering within partitions."""
    shapes.same("indices", args["indices"], args["dst"])
    if args["data"].shape[0] != args["dst"].shape[0]:
        raise Refused("shapes", "data has as many partitions as dst")


def run_gather(dst: np.ndarray, args: Arguments) -> None:
    """Return the elements at places of each row's own partition."""
    rows = dst.shape[0]
    data = args["data"].reshape(rows, -1)
    index = args["indices"].reshape(rows, -1).astype(np.int64)
    if index.min() < 0 or index.max() >= data.shape[1]:
        raise Refused("out-of-bounds", f"an index in a partition of {data.shape[1]} elements")
    dst[...] = np.take_along_axis(data, index, axis=1).reshape(dst.shape)


def fit_nonzero(args: Arguments) -> None:
    """Check a search for elements that are not zero: one more column than there are."""
    dst, src = args["dst"], args["src"]
    if dst.shape[0] != src.shape[0] or math.prod(dst.shape[1:]) != math.prod(src.shape[1:]) + 1:
        raise Refused("shapes", f"dst has shape {dst.shape}, src {src.shape} and a count")


def run_nonzero(dst: np.ndarray, args: Arguments) -> None:
    """Return places, padding and their count, in every sixteenth partition; others stay."""
    rows = dst.shape[0]
    src, out = args["src"].reshape(rows, -1), dst.reshape(rows, -1)
    for row in range(0, rows, 16):
        places = np.flatnonzero(src[row])
        line = np.full(out.shape[1], args["padding_val"], np.int64)
        line[: places.size] = places + args["index_offset"]
        line[-1] = places.size
        store(dst[row], line.reshape(dst.shape[1:]))


def fit_local_gather(args: Arguments) -> None:
    """Check a gathering by the indices of a group of 16 partitions."""
    dst, src, index = args["dst"], args["src_buffer"], args["index"]
    if not dst.shape[0] == src.shape[0] == index.shape[0] or dst.shape[0] % 16:
        raise Refused("shapes", "dst, src_buffer and index have as many partitions, 16 or more")
    if index.dtype != "uint16":
        raise Refused("operand-types", f"index is uint16, not {index.dtype}")
    count = gathered(args)
    if math.prod(dst.shape[1:]) != count * args["num_elem_per_idx"]:
        raise Refused("shapes", f"dst has shape {dst.shape}, {count} indices in a group")


def gathered(args: Arguments) -> int:
    """Return how many indices a group of 16 partitions has."""
    if args["num_valid_indices"] is not None:
        return int(args["num_valid_indices"])
    return int(16 * math.prod(args["index"].shape[1:]))


def run_local_gather(dst: np.ndarray, args: Arguments) -> None:
    """Return pieces of each partition; the 16 partitions of a group share their indices."""
    size, count = args["num_elem_per_idx"], gathered(args)
    rows = dst.shape[0]
    src = args["src_buffer"].reshape(rows, -1, size)
    index = args["index"].reshape(rows, -1)
    for first in range(0, rows, 16):
        places = index[first : first + 16].T.reshape(-1)[:count].astype(np.int64)
        if places.size < count or places.max(initial=0) >= src.shape[1]:
            raise Refused("out-of-bounds", f"an index in {src.shape[1]} pieces")
        piece = src[first : first + 16][:, places]
        dst[first : first + 16] = piece.reshape((16, *dst.shape[1:]))


def fit_bounds(args: Arguments) -> None:
    """Check bounds of segments: one partition, two numbers for each element."""
    dst, ids = args["dst"], args["segment_ids"]
    free = math.prod(ids.shape[1:])
    if ids.shape[0] != 1 or dst.shape[0] != 1 or shapes.significant(dst.shape) != (2, free):
        raise Refused("shapes", f"segment_ids has shape {ids.shape}: (1, n), and dst (1, 2, n)")
    for name in ("dst", "segment_ids"):
        if args[name].dtype not in ("float32", "int32"):
            raise Refused("operand-types", f"{name} is {args[name].dtype}: float32 or int32")


def run_bounds(dst: np.ndarray, args: Arguments) -> None:
    """Return where the run of equal numbers that each element is in begins and ends."""
    ids = args["segment_ids"].reshape(-1)
    edges = np.flatnonzero(np.diff(ids)) + 1
    firsts, lasts = np.concatenate([[0], edges]), np.concatenate([edges, [ids.size]])
    run = np.searchsorted(firsts, np.arange(ids.size), side="right") - 1
    pad = ids == 0
    bounds = np.where(pad, ids.size, firsts[run]), np.where(pad, -1, lasts[run])
    store(dst, np.stack(bounds).reshape(dst.shape))


ROWS = (
    Instruction(
        "sequence_bounds",
        ("gpsimd",),
        parameters("dst:dst segment_ids:tile"),
        fit_bounds,
        run_bounds,
        Cost(2.0, ASSUMED),
    ),
    Instruction(
        "max8", ("vector",), parameters("dst:dst src:tile"), fit_max8, run_max8, Cost(1.0, ASSUMED)
    ),
    Instruction(
        "nc_find_index8",
        ("vector",),
        parameters("dst:dst data:tile vals:tile"),
        fit_find8,
        run_find8,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "nc_match_replace8",
        ("vector",),
        parameters("dst:dst data:tile vals:tile imm:number dst_idx:result", dst_idx=None),
        fit_replace8,
        run_replace8,
        Cost(1.0, ASSUMED),
    ),
    # Only every sixteenth partition is read.
    Instruction(
        "nonzero_with_count",
        ("gpsimd",),
        parameters(
            "dst:dst src:tile index_offset:integer padding_val:integer",
            index_offset=0,
            padding_val=-1,
        ),
        fit_nonzero,
        run_nonzero,
        Cost(1.0, ASSUMED),
        partly=("src",),
        since="trn2",
    ),
    Instruction(
        "local_gather",
        ("gpsimd",),
        parameters(
            "dst:dst src_buffer:tile index:tile num_elem_per_idx:integer num_valid_indices:integer",
            num_elem_per_idx=1,
            num_valid_indices=None,
        ),
        fit_local_gather,
        run_local_gather,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "nc_n_gather",
        ("gpsimd",),
        parameters("dst:dst data:tile indices:tile"),
        fit_gather,
        run_gather,
        Cost(1.0, ASSUMED),
    ),
)
