"""The depthwise convolution that Relax makes: one function, the right one, and what is fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.relax.frontend import nn
from tvm.s_tir import Schedule, ScheduleError

from depthwise import Options, assert_between, call, interval, operands
from fuse_epilogue import refusal_code
from fuse_epilogue.workloads import relax_depthwise_conv1d
from fused_block import blocks
from oracles import compile_together
from test_relax import fused_by_relax

BASE: Options = {
    "n": 2,
    "c": 5,
    "w": 19,
    "f": 4,
    "padding": "same",
    "stride": 1,
    "dilation": 1,
    "dtype": "float32",
    "bias": True,
    "activation": None,
}
SLICE, DYNAMIC_SLICE = "T_strided_slice_with_axes", "T_dynamic_strided_slice_with_axes"
CONV, PAD, ADD = "group_conv1d_ncw", "pad_temp", "T_add"

# The arguments, the blocks that Relax makes, and those that are left when they are fused.
CASES: list[tuple[Options, list[str], list[str]]] = [
    ({}, [PAD, CONV, ADD], [PAD, CONV]),
    ({"padding": "valid", "bias": False, "f": 7}, [PAD, CONV], []),
    ({"padding": (3, 0), "stride": 3}, [PAD, CONV, ADD], [PAD, CONV]),
    ({"activation": "relu", "dilation": 3}, [PAD, CONV, ADD, "compute"], [PAD, CONV, "compute"]),
    (
        {"activation": "silu", "stride": 2, "f": 16},
        [PAD, CONV, ADD, "compute", "T_multiply"],
        [PAD, CONV, "T_multiply"],
    ),
    (
        {"activation": "silu", "n": "n", "w": "w", "dilation": 2},
        [PAD, CONV, ADD, "compute", "T_multiply"],
        [PAD, CONV, "T_multiply"],
    ),
    (
        {"c": 1, "n": 1, "activation": "relu"},
        [PAD, "conv1d_ncw", ADD, "compute"],
        [PAD, "conv1d_ncw", "compute"],
    ),
    ({"w": 1, "f": 6, "padding": "causal"}, [PAD, CONV, ADD, SLICE], [PAD, CONV, SLICE]),
    ({"f": 1, "padding": "causal"}, [PAD, CONV, ADD, SLICE], [PAD, CONV]),
    (
        {"padding": "causal", "activation": "silu"},
        [PAD, CONV, ADD, SLICE, "compute", "T_multiply"],
        [PAD, CONV, SLICE, "compute", "T_multiply"],
    ),
    (
        {"padding": "causal", "stride": 2, "dilation": 2, "activation": "relu", "n": "n"},
        [PAD, CONV, ADD, DYNAMIC_SLICE, "compute"],
        [PAD, CONV, DYNAMIC_SLICE, "compute"],
    ),
    (
        {"padding": "causal", "bias": False, "activation": "relu"},
        [PAD, CONV, SLICE, "compute"],
        [],
    ),
]
IDS = ["-".join(f"{k}={v}" for k, v in case[0].items()) or "plain" for case in CASES]


def layer(options: Options) -> Any:
    arguments = {**BASE, **options}
    sizes = [arguments.pop(size) for size in ("n", "c", "w", "f")]
    return relax_depthwise_conv1d(*sizes, **arguments)


def reduction_of(func: Any) -> str:
    (name,) = [name for name, block in blocks(func).items() if block.init is not None]
    return name


def check(run: Any, options: Options, kind: str) -> None:
    """Call with weight[C, 1, F] and bias[1, C, 1], as the function wants them."""
    fixed = {"layout": "NCW", "shift": 7, **BASE, **options, "kind": kind}
    fixed.update({name: 2 * fixed["f"] for name in "nw" if isinstance(fixed[name], str)})
    sizes = [fixed[name] for name in ("n", "c", "w", "f")]
    inputs = operands(fixed, kind, np.random.default_rng(3), *sizes)
    if fixed["dtype"] != "float32":
        # Small integers, whose sums are exact even in the 16 bits that Relax sums them in.
        inputs = {name: np.round(value / 8) for name, value in inputs.items()}
    low, high = interval(fixed, inputs)
    shaped = {
        "x": inputs["x"],
        "weight": inputs["weight"][:, None, :],
        "bias": inputs["bias"][None, :, None],
    }
    assert_between(call(run, fixed, shaped, low.shape[2]), low, high, str(options))


@pytest.fixture(scope="module")
def built() -> Any:
    """Every case as it is, and fused as far as that goes."""
    functions = {}
    for i, (options, _, left) in enumerate(CASES):
        functions[f"case{i}"] = func = layer(options)
        if left:
            sch = Schedule(func, debug_mask="all")
            sch.fuse_reduction_epilogue(reduction_of(func))
            functions[f"fused{i}"] = sch.mod["main"]
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("index", range(len(CASES)), ids=IDS)
def test_computes_the_convolution(built: Any, index: int) -> None:
    options, _, left = CASES[index]
    for name in [f"case{index}"] + [f"fused{index}"] * bool(left):
        for kind in ("exact", "normal"):
            check(built[name], options, kind)


@pytest.mark.parametrize("index", range(len(CASES)), ids=IDS)
def test_blocks(index: int) -> None:
    """One function with the blocks of all operators; fused, the slice and what follows stay."""
    options, names, left = CASES[index]
    func = layer(options)
    assert list(blocks(func)) == names
    assert func.attrs["global_symbol"] == "main"
    if not left:
        return
    sch = Schedule(func, debug_mask="all")
    report = sch.fuse_reduction_epilogue(reduction_of(func))
    assert list(blocks(sch.mod["main"])) == left
    assert "absorbed bias[" in str(report)
    slices = [name for name in left if name in (SLICE, DYNAMIC_SLICE)]
    stopped = [] if report.stopped is None else [(report.stopped.code, report.stopped.block)]
    assert stopped == [("domain", name) for name in slices]


def test_nothing_to_fuse() -> None:
    """The cases without blocks that are left: no consumer, or only a slice of the bare sum."""
    codes = []
    for options, _, left in CASES:
        if not left:
            with pytest.raises(ScheduleError) as error:
                Schedule(layer(options), debug_mask="all").fuse_reduction_epilogue(CONV)
            codes.append(refusal_code(error.value))
    assert codes == ["no-consumer", "domain"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits(dtype: str) -> None:
    """Relax sums in 16 bits: such a sum absorbs no bias, and all of the epilogue is its tail."""
    options = {"dtype": dtype, "activation": "relu"}
    func = layer(options)
    sch = Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue(CONV)
    # A tail that works on a bfloat16 keeps the store before it, which rounds.
    add = [ADD] * (dtype == "bfloat16")
    assert list(blocks(sch.mod["main"])) == [PAD, CONV, *add, "compute"]
    both = compile_together({"unfused": func, "fused": sch.mod["main"]}, opt_level=0)
    for run in both.values():
        check(run, options, "exact")


class Layer(nn.Module):
    """The layer as it is written in Relax's own front end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1D(5, 5, 4, padding=3, stride=2, groups=5, bias=True)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.silu(self.conv(x))


def test_is_what_the_front_end_makes() -> None:
    theirs = fused_by_relax(Layer(), {"x": nn.spec.Tensor([2, 5, 19], "float32")})
    ours = layer({"padding": (3, 3), "stride": 2, "activation": "silu"})
    tvm.ir.assert_structural_equal(theirs.with_attr("global_symbol", "main"), ours)
