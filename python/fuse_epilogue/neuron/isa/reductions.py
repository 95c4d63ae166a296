"""Instructions that reduce."""

from __future__ import annotations

import math

import numpy as np

from ..errors import Refused
from . import shapes
from .arithmetic import REDUCERS, combine, store, widened
from .execute import column, run_reduce
from .row import ASSUMED, Arguments, Cost, Instruction, parameters


def fit_statistics(args: Arguments) -> None:
    """Check statistics of a row: six numbers for each partition."""
    dst, data = args["dst"], args["data"]
    if dst.shape[0] != data.shape[0] or math.prod(dst.shape[1:]) != 6:
        raise Refused("shapes", f"dst has shape {dst.shape}, statistics ({data.shape[0]}, 6)")


def run_statistics(dst: np.ndarray, args: Arguments) -> None:
    """Count, mean and variance * count of the even elements, then of the odd ones."""
    data = widened(args["data"]).reshape(dst.shape[0], -1)
    columns = []
    for part in (data[:, 0::2], data[:, 1::2]):
        count = part.shape[1]
        mean = part.sum(axis=1) / np.float32(count) if count else np.zeros(len(part), np.float32)
        spread = np.square(part - mean[:, None]).sum(axis=1)
        columns += [np.full(len(part), count, np.float32), mean, spread]
    store(dst, np.stack(columns, axis=1).reshape(dst.shape))


def fit_aggregate(args: Arguments) -> None:
    """Check the union of statistics: triples in, mean and variance out."""
    dst, data = args["dst"], args["data"]
    if dst.shape[0] != data.shape[0] or math.prod(dst.shape[1:]) != 2:
        raise Refused("shapes", f"dst has shape {dst.shape}, mean and variance are two numbers")
    if math.prod(data.shape[1:]) % 3:
        raise Refused("shapes", f"data has shape {data.shape}: counts, means, variances in threes")


def run_aggregate(dst: np.ndarray, args: Arguments) -> None:
    """Return mean and variance of all that was counted."""
    triples = widened(args["data"]).reshape(dst.shape[0], -1, 3)
    count, mean, spread = triples[..., 0], triples[..., 1], triples[..., 2]
    total = count.sum(axis=1)
    middle = (count * mean).sum(axis=1) / total
    apart = (count * np.square(mean - middle[:, None])).sum(axis=1)
    variance = (spread.sum(axis=1) + apart) / total
    store(dst, np.stack([middle, variance], axis=1).reshape(dst.shape))


def fit_partitions(args: Arguments) -> None:
    """Check a reduction over the partitions."""
    dst, data = args["dst"], args["data"]
    if dst.shape[0] != 1 or math.prod(dst.shape) != math.prod(data.shape[1:]):
        raise Refused("shapes", f"dst has shape {dst.shape}, the reduction (1, {data.shape[1:]})")


def run_partitions(dst: np.ndarray, args: Arguments) -> None:
    """Reduce over the partitions in float32."""
    store(dst, REDUCERS[args["op"]](widened(args["data"]), axis=0).reshape(dst.shape))


#: Where a cumulative reduction starts, by its operation.
_STARTS = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


def fit_cumulative(args: Arguments) -> None:
    """Check a cumulative reduction: its operation, and where it starts."""
    shapes.same("src", args["src"], args["dst"])
    for name in ("imm0", "imm1"):
        shapes.vector(name, args[name], args["dst"])
    if args["op1"] not in _STARTS:
        known = ", ".join(f"nl.{name}" for name in _STARTS)
        raise Refused("language", f"op1 must be one of {known}, not nl.{args['op1']}")
    if args["reduce_cmd"] not in ("reset_reduce", "reduce", "load_reduce"):
        raise Refused("language", "reduce_cmd must be reset_reduce, reduce or load_reduce")
    if (args["reduce_cmd"] == "load_reduce") != (args["imm1"] is not None):
        raise Refused("language", "imm1 is where load_reduce starts: they are given together")
    for name in ("src", "dst"):
        if args[name].dtype in ("int32", "uint32"):
            raise Refused("operand-types", f"{name} is {args[name].dtype}: at most 16-bit integers")


def run_cumulative(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``x[i] = (src[i] op0 imm0) op1 x[i - 1]`` in float32."""
    rows = dst.shape[0]
    data = widened(args["src"]).reshape(rows, -1)
    values = combine(args["op0"], data, column(args["imm0"], rows))
    start = _STARTS[args["op1"]] if args["imm1"] is None else args["imm1"]
    held = args["accumulators"]
    if args["reduce_cmd"] == "reduce":
        start = held[args["engine"]]
        if len(start) != rows:
            raise Refused("shapes", f"{len(start)} partitions were reduced before")
    last = np.broadcast_to(column(start, rows), (rows, 1))[:, 0]
    result = np.empty(data.shape, np.float32)
    for at in range(data.shape[1]):
        result[:, at] = last = combine(args["op1"], values[:, at], last)
    held[args["engine"]] = last
    store(dst, result.reshape(dst.shape))


ROWS = (
    Instruction(
        "tensor_scalar_cumulative",
        ("vector",),
        parameters(
            "dst:dst src:tile op0:op op1:op imm0:vector imm1:vector reduce_cmd:reduce_cmd",
            imm1=None,
            reduce_cmd="reset_reduce",
        ),
        fit_cumulative,
        run_cumulative,
        Cost(2.0, ASSUMED),
    ),
    Instruction(
        "tensor_reduce",
        ("vector",),
        parameters(
            "dst:dst op:reducer data:tile axis:axes negate:flag keepdims:flag",
            negate=False,
            keepdims=False,
        ),
        shapes.fit_reduce,
        run_reduce,
    ),
    Instruction(
        "tensor_partition_reduce",
        ("gpsimd",),
        parameters("dst:dst op:reducer data:tile"),
        fit_partitions,
        run_partitions,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "bn_stats",
        ("vector",),
        parameters("dst:dst data:tile"),
        fit_statistics,
        run_statistics,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "bn_aggr",
        ("vector",),
        parameters("dst:dst data:tile"),
        fit_aggregate,
        run_aggregate,
        Cost(13.0 / 3.0, ASSUMED),
    ),
)
