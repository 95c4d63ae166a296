"""Instructions that compute element by element."""

from __future__ import annotations

import numpy as np

from ..errors import Refused
from . import shapes
from .arithmetic import BINARY, BITWISE, FUNCTIONS, REDUCERS, store, widened
from .execute import (
    activated,
    column,
    like,
    ordered,
    run_activation,
    run_tensor_tensor,
    run_two_ops,
    wide,
)
from .row import ASSUMED, Arguments, Cost, Instruction, parameters


def fit_activation(args: Arguments) -> None:
    """Check an activation, and the column that it may reduce to."""
    shapes.same("data", args["data"], args["dst"])
    for name in ("bias", "scale"):
        shapes.vector(name, args[name], args["dst"])
    _fit_result(args, "add")
    reduces = args["reduce_res"] is not None or args.get("reduce_cmd", "idle") != "idle"
    if reduces and args["reduce_op"] is None:
        raise Refused("language", "reduce_op and reduce_res are given together")


def run_and_reduce(dst: np.ndarray, args: Arguments) -> None:
    """Compute an activation, and reduce what it gives before it is rounded."""
    _reduce_to(run_activation(dst, args), args)


def _reduce_to(value: np.ndarray, args: Arguments) -> None:
    """Reduce into the registers of the engine as `reduce_cmd` says, and read them on demand."""
    held, engine, command = args["accumulators"], args["engine"], args.get("reduce_cmd")
    op = args["reduce_op"] or "add"
    if command == "reset":
        held[engine] = np.full(value.shape[0], STARTS[op], np.float32)
    elif command != "idle":
        total = REDUCERS[op](value.reshape(value.shape[0], -1), axis=1)
        if command in ("reduce", "load_reduce"):
            before = held[engine] if command == "reduce" else widened(args["reduce_init"])
            if np.size(before) not in (1, total.size):
                raise Refused("shapes", f"{np.size(before)} partitions were reduced before")
            total = BINARY[op](before.reshape(-1), total)
        held[engine] = total
    into = args["reduce_res"]
    if into is not None:
        total = held[engine].reshape(into.shape)
        store(into, -total if args.get("reduce_res_negate") else total)


def _fit_result(args: Arguments, *ops: str) -> None:
    """Check the column that a reduction goes to, its operation, and where it starts."""
    if args["reduce_res"] is not None:
        shapes.vector("reduce_res", args["reduce_res"], args["dst"])
    if args.get("reduce_op") not in (None, *ops):
        names = " or ".join("nl." + op for op in ops)
        raise Refused("language", f"reduce_op must be {names}, not nl.{args['reduce_op']}")
    if "reduce_init" in args:
        shapes.vector("reduce_init", args["reduce_init"], args["dst"])
        if (args["reduce_cmd"] == "load_reduce") != (args["reduce_init"] is not None):
            raise Refused("language", "reduce_init is where load_reduce starts: they go together")
    elif args.get("reduce_cmd") == "load_reduce":
        raise Refused("language", "there is no reduce_cmd.load_reduce without reduce_init")


def fit_scalar_reduce(args: Arguments) -> None:
    """Check an operation with a constant, and the column that it is reduced to."""
    shapes.same("data", args["data"], args["dst"])
    shapes.vector("operand0", args["operand0"], args["dst"])
    shapes.second_operands(args)
    _fit_result(args, "add", "multiply", "maximum", "minimum")


def run_scalar_reduce(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``data op0 operand0``, and reduce it along the free dimensions."""
    operand = like(args["operand0"], dst)
    value = ordered(args["op0"], like(args["data"], dst), operand, args["reverse0"])
    store(dst, value)
    _reduce_to(value, args)


def run_reciprocal(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``1 / data``."""
    store(dst, np.float32(1) / widened(like(args["data"], dst)))


def fit_scan(args: Arguments) -> None:
    """Check a scan along the free dimension."""
    for name in ("data0", "data1"):
        shapes.same(name, args[name], args["dst"])
    shapes.vector("initial", args["initial"], args["dst"])


def run_scan(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``x[i] = (data0[i] op0 x[i - 1]) op1 data1[i]`` in float32."""
    rows = dst.shape[0]
    left = widened(args["data0"]).reshape(rows, -1)
    right = widened(args["data1"]).reshape(rows, -1)
    last = np.broadcast_to(column(args["initial"], rows), (rows, 1))[:, 0]
    result = np.empty(left.shape, np.float32)
    for at in range(left.shape[1]):
        last = ordered(args["op0"], left[:, at], last, args["reverse0"])
        last = ordered(args["op1"], last, right[:, at], args["reverse1"])
        result[:, at] = last
    store(dst, result.reshape(dst.shape))


def fit_select(args: Arguments) -> None:
    """Check a choice by a predicate."""
    shapes.same("predicate", args["predicate"], args["dst"])
    shapes.same("on_true", args["on_true"], args["dst"])
    shapes.vector("on_false", args["on_false"], args["dst"])
    if args["predicate"].dtype not in ("int8", "uint8", "int16", "uint16"):
        raise Refused(
            "operand-types", f"predicate is {args['predicate'].dtype}: an integer of 8 or 16 bits"
        )
    if args["on_true"].dtype in ("int32", "uint32"):
        raise Refused("operand-types", f"on_true is {args['on_true'].dtype}: at most 16 bits")
    _fit_result(args, "maximum")


def run_select(dst: np.ndarray, args: Arguments) -> None:
    """Choose by a predicate, and reduce to its maximum on demand."""
    where = like(args["predicate"], dst) != 0
    if args["reverse_pred"]:
        where = ~where
    value = np.where(
        where, widened(like(args["on_true"], dst)), widened(like(args["on_false"], dst))
    )
    store(dst, value)
    _reduce_to(value, args)


def fit_range(args: Arguments) -> None:
    """Check a choice by the place in the row."""
    shapes.same("on_true_tile", args["on_true_tile"], args["dst"])
    for name in ("bound0", "bound1"):
        shapes.vector(name, args[name], args["dst"])
    for name in ("comp_op0", "comp_op1"):
        if args[name] not in COMPARISONS:
            names = ", ".join("nl." + op for op in COMPARISONS)
            raise Refused("language", f"{name} must be one of {names}")
    if np.float32(args["on_false_value"]) != np.float32(LEAST):
        raise Refused("language", f"on_false_value must be {LEAST}, the least float32")
    _fit_result(args, "maximum")


def run_range(dst: np.ndarray, args: Arguments) -> None:
    """Keep the elements whose place is within two bounds."""
    rows = dst.shape[0]
    data = widened(args["on_true_tile"]).reshape(rows, -1)
    place = np.arange(data.shape[1], dtype=np.float32)[None] + np.float32(args["range_start"])
    inside = BINARY[args["comp_op0"]](place, column(args["bound0"], rows))
    inside = inside & BINARY[args["comp_op1"]](place, column(args["bound1"], rows))
    value = np.where(inside, data, np.float32(args["on_false_value"]))
    store(dst, value.reshape(dst.shape))
    _reduce_to(value, args)


def fit_exponential(args: Arguments) -> None:
    """Check an exponential, and the column that its sum goes to."""
    shapes.same("src", args["src"], args["dst"])
    shapes.vector("max_value", args["max_value"], args["dst"])
    if args["reduce_cmd"] == "idle" and args["reduce_res"] is not None:
        raise Refused("language", "reduce_res needs a reduce_cmd other than idle")
    loads = args["reduce_cmd"] == "load_reduce" or args["reduce_init"] != 0
    _fit_result(args if loads else {**args, "reduce_init": None})


def run_exponential(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``exp(src - max_value)``, and its sum on demand."""
    value = np.exp(widened(like(args["src"], dst)) - widened(like(args["max_value"], dst)))
    store(dst, value)
    _reduce_to(value, {**args, "reduce_op": "add"})


def fit_activate2(args: Arguments) -> None:
    """Check two operations with constants or columns, a function, and a reduction."""
    shapes.same("data", args["data"], args["dst"])
    for name in ("imm0", "imm1"):
        shapes.vector(name, args[name], args["dst"])
    if (args["op0"], args["op1"]) not in STAGES:
        raise Refused("language", f"nl.{args['op0']} and nl.{args['op1']} are not a pair it has")
    _fit_result(args, "add", "maximum", "minimum", "abs_max")


def run_activate2(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``op((data op0 imm0) op1 imm1)``, and reduce it on demand."""
    value = widened(like(args["data"], dst))
    for at in "01":
        operand = widened(like(args["imm" + at], dst))
        if args["op" + at] != "bypass":
            value = ordered(args["op" + at], value, operand, args["reverse" + at])
    value = activated(args["op"], value)
    store(dst, value)
    _reduce_to(value, args)


def tiles_engine(args: Arguments) -> str:
    """Return where two tiles are combined: integers of 32 bits on GpSimd, which does not round."""
    tiles = [args[name] for name in ("dst", "data1", "data2")]
    near = all(tile.space == "sbuf" for tile in tiles)
    return "gpsimd" if near and wide(tiles) and args["op"] not in BITWISE else "vector"


#: Where a reduction starts, by its operation.
STARTS = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0}
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
#: The least value of float32, what range_select puts where it does not choose.
LEAST = -3.4028234663852886e38
#: Pairs of operations before the function of activate2.
STAGES = {
    *(("multiply", op) for op in ("add", "subtract", "bypass")),
    *((op, "bypass") for op in ("add", "subtract", "bypass")),
}

ROWS = (
    Instruction(
        "tensor_tensor",
        ("vector", "gpsimd"),
        parameters("dst:dst data1:tile data2:tile op:op"),
        shapes.elementwise("data1", "data2"),
        run_tensor_tensor,
        # nki.isa.tensor_tensor: native arithmetic is the default for integers of 32 bits in SBUF
        choose=tiles_engine,
    ),
    Instruction(
        "tensor_scalar",
        ("vector", "scalar", "gpsimd"),
        parameters(
            "dst:dst data:tile op0:op operand0:operand reverse0:flag op1:op operand1:operand "
            "reverse1:flag",
            reverse0=False,
            op1=None,
            operand1=None,
            reverse1=False,
        ),
        shapes.fit_tensor_scalar,
        run_two_ops,
    ),
    Instruction(
        "scalar_tensor_tensor",
        ("vector",),
        parameters(
            "dst:dst data:tile op0:op operand0:vector op1:op operand1:tile reverse0:flag "
            "reverse1:flag",
            reverse0=False,
            reverse1=False,
        ),
        shapes.fit_two_tiles,
        run_two_ops,
    ),
    Instruction(
        "tensor_scalar_reduce",
        ("vector",),
        parameters(
            "dst:dst data:tile op0:op operand0:operand reduce_op:reducer reduce_res:result "
            "reverse0:flag reduce_cmd:reduce_cmd reduce_init:vector reduce_res_negate:flag",
            reduce_res=None,
            reverse0=False,
            reduce_cmd="reset_reduce",
            reduce_init=None,
            reduce_res_negate=False,
        ),
        fit_scalar_reduce,
        run_scalar_reduce,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "activation",
        ("scalar",),
        parameters(
            "dst:dst op:function data:tile bias:vector scale:vector reduce_op:reducer "
            "reduce_res:result reduce_cmd:reduce_cmd",
            bias=None,
            scale=1.0,
            reduce_op=None,
            reduce_res=None,
            reduce_cmd="idle",
        ),
        fit_activation,
        run_and_reduce,
    ),
    # Two destinations.
    Instruction(
        "activation_reduce",
        ("scalar",),
        parameters(
            "dst:dst op:function data:tile reduce_op:reducer reduce_res:result bias:vector "
            "scale:vector",
            bias=None,
            scale=1.0,
        ),
        fit_activation,
        run_and_reduce,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "activate2",
        ("scalar",),
        parameters(
            "dst:dst op:function data:tile imm0:vector imm1:vector op0:op op1:op "
            "reverse0:flag reverse1:flag reduce_op:reducer reduce_res:result "
            "reduce_cmd:reduce_cmd",
            reverse0=False,
            reverse1=False,
            reduce_op=None,
            reduce_res=None,
            reduce_cmd="idle",
        ),
        fit_activate2,
        run_activate2,
        Cost(1.0, ASSUMED, ("trn3",)),
        since="trn3",
    ),
    Instruction(
        "exponential",
        ("vector",),
        parameters(
            "dst:dst src:tile max_value:vector reduce_res:result reduce_cmd:reduce_cmd "
            "reduce_init:vector",
            max_value=0.0,
            reduce_res=None,
            reduce_cmd="idle",
            reduce_init=0.0,
        ),
        fit_exponential,
        run_exponential,
        Cost(1.0, ASSUMED, ("trn3",)),
        since="trn3",
    ),
    Instruction(
        "reciprocal",
        ("vector", "scalar", "gpsimd"),
        parameters("dst:dst data:tile"),
        shapes.elementwise("data"),
        run_reciprocal,
    ),
    Instruction(
        "tensor_tensor_scan",
        ("vector",),
        parameters(
            "dst:dst data0:tile data1:tile initial:vector op0:op op1:op reverse0:flag "
            "reverse1:flag",
            reverse0=False,
            reverse1=False,
        ),
        fit_scan,
        run_scan,
        Cost(2.0, ASSUMED),
    ),
    Instruction(
        "select_reduce",
        ("vector",),
        parameters(
            "dst:dst predicate:tile on_true:tile on_false:vector reduce_res:result "
            "reduce_cmd:reduce_cmd reduce_op:reducer reverse_pred:flag",
            reduce_res=None,
            reduce_cmd="idle",
            reduce_op="maximum",
            reverse_pred=False,
        ),
        fit_select,
        run_select,
        Cost(1.0, ASSUMED),
    ),
    Instruction(
        "range_select",
        ("vector",),
        parameters(
            "dst:dst on_true_tile:tile comp_op0:op comp_op1:op bound0:tile bound1:tile "
            "reduce_cmd:reduce_cmd reduce_res:result reduce_op:reducer range_start:number "
            "on_false_value:number",
            reduce_cmd="reset_reduce",
            reduce_res=None,
            reduce_op="maximum",
            range_start=0,
            on_false_value=LEAST,
        ),
        fit_range,
        run_range,
        Cost(1.0, ASSUMED),
        since="trn2",
    ),
)

#: What ``op`` of an activation may be.
ACTIVATIONS = FUNCTIONS
