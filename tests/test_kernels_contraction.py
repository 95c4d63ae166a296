"""Contraction kernels compute what the unscheduled function computes, and write nothing else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.target import Target

import contraction_programs as programs
from fuse_epilogue.kernels.cpu import contraction
from fuse_epilogue.recognize.contraction import read_contraction
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.cpu import for_llvm
from kernel_runs import run
from tiers import crossed

INT8 = ("int8", "int32")

PRODUCTS = {
    "plain": {},
    "transposed-b": {"turned_b": True},
    "transposed-a": {"turned_a": True},
    "batch": {"batch": 3},
    "batch-transposed-b": {"batch": 3, "turned_b": True},
    "grouped": {"batch": 4, "shared": 2},
    "int8": {"types": INT8, "turned_b": True},
}
CONVS = {
    "3x3": {"kernel": (3, 3), "padding": 1},
    "3x3-s2": {"kernel": (3, 3), "padding": 1, "stride": 2},
    "1x1": {"kernel": (1, 1)},
    "1x1-s2": {"kernel": (1, 1), "stride": 2},
    "5x3-d2": {"kernel": (5, 3), "padding": 4, "dilation": 2},
    "nchw": {"kernel": (3, 3), "padding": 1, "layout": "NCHW"},
    "depthwise": {"kernel": (3, 3), "padding": 1, "groups": "all"},
    "groups": {"kernel": (3, 3), "padding": 1, "groups": 2},
    "conv1d": {"kernel": (3,), "padding": 1, "layout": "NWC"},
    "conv3d": {"kernel": (3, 3, 3), "padding": 1, "layout": "NDHWC"},
}


#: Rows, columns and products of a sum: each value with each value of its neighbours.
SIZES = tuple(zip((3, 17, 1, 129) * 5, (129, 7, 17, 2, 33) * 4, (7, 129, 1) * 7, strict=False))
#: Columns, channels and filters.
IMAGES = tuple(zip((7, 17, 3, 29) * 3, (8, 2, 10) * 4, (16, 4, 26, 4, 26, 16) * 2, strict=True))


@crossed(kind=tuple(PRODUCTS), size=SIZES)
def test_products_are_those_of_the_unscheduled_function(
    kind: str, size: tuple[int, int, int]
) -> None:
    m, n, k = size
    constants = {1} if (m + n + k) % 3 else set()
    compare(programs.product(m, n, k, **PRODUCTS[kind]), constants, m * n + k)


@crossed(kind=tuple(CONVS), size=IMAGES)
def test_convolutions_are_those_of_the_unscheduled_function(
    kind: str, size: tuple[int, int, int]
) -> None:
    width, channels, filters = size
    constants = {1} if (width + channels) % 4 != 3 else set()
    compare(conv_of(kind, width, channels, filters), constants, width)


@pytest.mark.usefixtures("free_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_columns_are_stored_by_heads(threads: int) -> None:
    func = programs.permuted(33, 4, 24, 40)
    compare(func, {1}, 5, threads)


def conv_of(kind: str, width: int, channels: int, filters: int) -> Any:
    options = dict(CONVS[kind])
    layout = options.setdefault("layout", "NHWC")
    groups = options.get("groups", 1)
    if groups == "all":
        filters = options["groups"] = channels
    sizes = {"N": 2, "C": channels, "H": 5, "W": width, "D": 4}
    if "D" not in layout:
        sizes["H"] = width + 1
    kernel = (filters, *options.pop("kernel"))
    return programs.conv(tuple(sizes[axis] for axis in layout), kernel, **options)


def compare(func: Any, constants: set[int], seed: int, threads: int = 1) -> None:
    """Compare with the unscheduled function and, in float64, exactly."""
    program = read_program(func)
    assert program is not None
    scheduled = next(
        contraction.alternatives(program, host(threads), threads, frozenset(constants)), None
    )
    assert scheduled is not None
    assert scheduled.kind == "contraction"
    assert set(scheduled.packing) <= constants
    rng = np.random.default_rng(seed)
    arrays = [
        rng.integers(-4, 5, [int(size) for size in param.shape]).astype(str(param.dtype))
        for param in program.inputs
    ]
    out = program.outputs[0]
    shape, dtype = tuple(map(int, out.shape)), str(out.dtype)
    packed = [
        scheduled.packing[place].pack(array) if place in scheduled.packing else array
        for place, array in enumerate(arrays)
    ]
    expected = run(func, arrays, shape, dtype)
    assert np.array_equal(run(scheduled.func, packed, shape, dtype), expected)
    if dtype == "float32":
        inexact = [np.where(rng.random(x.shape) < 0.05, np.inf, x).astype(x.dtype) for x in arrays]
        # Weights at a border are taken to be finite where they are constant.
        inexact[1] = arrays[1]
        packed = [
            scheduled.packing[place].pack(array) if place in scheduled.packing else array
            for place, array in enumerate(inexact)
        ]
        expected = run(func, inexact, shape, dtype)
        got = run(scheduled.func, packed, shape, dtype)
        assert np.array_equal(got, expected, equal_nan=True)


#: Name, function, and whether the second operand is constant.
IN_REGISTERS = {
    "dense": (lambda: programs.product(128, 768, 768), True),
    "batch-transposed": (lambda: programs.product(128, 128, 64, batch=12, turned_b=True), False),
    "rows-left": (lambda: programs.product(61, 72, 100), True),
    "1x1-s2": (lambda: programs.conv((1, 28, 28, 64), (64, 1, 1), stride=2), True),
}


@pytest.mark.parametrize("name", IN_REGISTERS)
def test_innermost_loops_keep_sums_in_registers(name: str) -> None:
    make, constant = IN_REGISTERS[name]
    target = Target({"kind": "llvm", "mcpu": "core-avx2", "mtriple": "x86_64-linux-gnu"})
    program = read_program(make())
    assert program is not None
    scheduled = next(
        contraction.alternatives(program, target, 1, frozenset({1} if constant else ())), None
    )
    assert scheduled is not None
    func = for_llvm(scheduled.func).with_attr("global_symbol", "main")
    loops = innermost_loops(assembly(func, target))
    products = [body for body in loops if "vfmadd" in body]
    assert products
    for body in products:
        # %rbp is a pointer like others where the loop moves it.
        moved = re.search(r"(add|sub|lea)q\t.*%rbp$", body, flags=re.M)
        stack = r"\(%rsp[,)]" if moved else r"\(%r[sb]p[,)]"
        assert not re.search(rf"{stack}.*%[xyz]mm|%[xyz]mm.*{stack}", body), body


def assembly(func: Any, target: Target) -> str:
    lowered = tvm.tirx.build(func, target)
    return str(lowered.inspect_source("asm"))


def innermost_loops(text: str) -> list[str]:
    """Return what is between a label and the next jump to it, where no other label is between."""
    blocks = re.split(r"^(?=\.LBB\w+:)", text, flags=re.M)
    found = []
    for block in blocks:
        back = re.search(rf"\tj\w+\t{re.escape(block.split(':', 1)[0])}\b", block)
        if back:
            found.append(block[: back.end()])
    return found


def test_axes_are_read_from_the_accesses() -> None:
    program = read_program(programs.conv((2, 9, 9, 4), (8, 3, 3), padding=1, stride=2))
    assert program is not None
    found = read_contraction(program)
    assert found is not None
    assert [axis.extent for axis in found.axes] == [2, 5, 5, 8]
    assert [(bound.size, bound.index.constant) for bound in found.a.bounds] == [(9, -1), (9, -1)]
    assert found.places(in_a=True, in_b=False) == [0, 1, 2]
    assert found.places(in_a=False, in_b=True) == [3]
