"""Convolutions by Winograd's algorithms: results, refusals, and what a caller has to allow."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te, topi
from tvm.target import Target

import contraction_programs as programs
from fuse_epilogue.kernels.cpu import contraction
from fuse_epilogue.kernels.cpu.contraction import machine_of, winograd
from fuse_epilogue.kernels.cpu.contraction.winograd.transforms import F2, F4, Transform
from fuse_epilogue.kernels.storage import from_data, to_data
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.cpu import for_llvm
from kernel_runs import run
from test_kernels_contraction import assembly, innermost_loops
from tiers import tiered

AVX2 = Target({"kind": "llvm", "mcpu": "core-avx2", "mtriple": "x86_64-linux-gnu"})
AVX512 = Target({"kind": "llvm", "mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu"})
#: Largest difference, as a part of the largest result.
BOUNDS = {F2: 1e-6, F4: 6e-6}
#: Rows and columns of the image, padding.
IMAGES = (
    *((4, 5, 0), (1, 2, 2), (2, 3, 1), (7, 5, 1)),
    *((13, 7, 0), (17, 13, 2), (5, 17, 1), (8, 8, 1)),
)
CHANNELS = ((3, 8), (8, 3), (17, 64), (64, 17), (2, 1), (1, 3), (16, 33), (64, 64))
CASES = [
    {"transform": transform, "image": image, "channels": CHANNELS[(number + step) % len(CHANNELS)]}
    for step, transform in enumerate((F2, F4))
    for number, image in enumerate(IMAGES)
]


def way(func: Any, transform: Transform, target: Target, threads: int = 1) -> Any:
    """Return a function scheduled with one of the transforms, whatever it costs."""
    program = read_program(func)
    assert program is not None
    layer = winograd.read_layer(program, frozenset({1}))
    assert not isinstance(layer, str), layer
    machine = machine_of(target, threads)
    plan = next(p for p in winograd.choose(layer, machine) if p.transform is transform)
    return winograd.scheduled_winograd(plan, machine)


def results(func: Any, scheduled: Any, arrays: list[np.ndarray]) -> np.ndarray:
    """Run between unreadable pages, with constant weights packed; check the zone after it."""
    program = read_program(func)
    assert program is not None
    shape = tuple(map(int, program.outputs[0].shape))
    given = [arrays[0], scheduled.packing[1].pack(arrays[1]), *arrays[2:]]
    return run(scheduled.func, given, shape, "float32")


def exact(arrays: list[np.ndarray], padding: int) -> np.ndarray:
    """The convolution with bias, residual and ReLU, in float64."""
    x, w, bias, *rest = (array.astype("float64") for array in arrays)
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    total = sum(
        x[:, i : i + rows, j : j + columns] @ w[:, i, j].T for i in range(3) for j in range(3)
    )
    return np.maximum(sum(rest, total + bias), 0)


@pytest.mark.parametrize("number", tiered(CASES, lambda case: "-".join(map(str, case["image"]))))
def test_results_are_those_of_the_sums_of_products(number: int) -> None:
    case = CASES[number]
    transform, (rows, columns, padding) = case["transform"], case["image"]
    channels, filters = case["channels"]
    residual = number % 2 == 0
    func = programs.conv(
        (2, rows, columns, channels), (filters, 3, 3), padding=padding, residual=residual
    )
    scheduled = way(func, transform, host(1))
    assert scheduled.kind == transform.name and scheduled.fusion == "tail"
    rng = np.random.default_rng(number)
    program = read_program(func)
    assert program is not None
    shapes = [tuple(map(int, param.shape)) for param in program.inputs]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    expected = exact(arrays, padding)
    got = results(func, scheduled, arrays)
    assert np.abs(got - expected).max() <= BOUNDS[transform] * np.abs(expected).max()
    if transform is F2:
        # All that is computed in between is a multiple of 1/4.
        whole = [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]
        assert np.array_equal(results(func, scheduled, whole), exact(whole, padding))


@pytest.mark.usefixtures("free_threads")
def test_threads_take_blocks() -> None:
    func = programs.conv((1, 29, 30, 8), (16, 3, 3), padding=1)
    rng = np.random.default_rng(1)
    shapes = ((1, 29, 30, 8), (16, 3, 3, 8), (16,))
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    one, two = (way(func, F2, host(threads), threads) for threads in (1, 2))
    kinds = ["T.parallel" in each.func.script() for each in (one, two)]
    assert kinds == [False, True]
    assert np.allclose(results(func, two, arrays), results(func, one, arrays), 1e-5, 1e-4)


@pytest.mark.full
@pytest.mark.parametrize("transform", [F2, F4])
def test_a_nan_stays_in_the_tiles_that_read_it(transform: Transform) -> None:
    func = programs.conv((1, 12, 12, 4), (4, 3, 3), padding=1)
    scheduled = way(func, transform, host(1))
    arrays = [np.ones(shape, "float32") for shape in ((1, 12, 12, 4), (4, 3, 3, 4), (4,))]
    clean = results(func, scheduled, arrays)
    arrays[0][0, 6, 6, 2] = np.nan
    changed = (results(func, scheduled, arrays) != clean)[0, ..., 0]
    far = np.maximum(*np.abs(np.indices((12, 12)) - 6)) > transform.outputs
    assert changed[5:8, 5:8].all() and not changed[far].any()


def test_an_epilogue_may_use_the_sum_twice() -> None:
    x, w = te.placeholder((1, 9, 9, 8), name="x"), te.placeholder((8, 3, 3, 8), name="w")
    y = topi.nn.conv(x, w, 1, 1, 1, 1, "NHWC", "OHWI", "float32")
    z = te.compute(y.shape, lambda *i: y[i] * te.min(te.max(y[i] + 3.0, 0.0), 6.0), "z")
    func = te.create_prim_func([x, w, z]).with_attr("tirx.noalias", True)
    rng = np.random.default_rng(2)
    whole = [rng.integers(-2, 3, shape).astype("float32") for shape in ((1, 9, 9, 8), (8, 3, 3, 8))]
    expected = run(func, whole, (1, 9, 9, 8), "float32")
    assert np.array_equal(results(func, way(func, F2, host(1)), whole), expected)


#: What is not computed so, and why.
DIRECT: dict[str, tuple[dict[str, Any], str]] = {
    "stride": ({"stride": 2}, "its stride or its dilation is not 1"),
    "dilation": ({"dilation": 2}, "its stride or its dilation is not 1"),
    "one row": ({"shape": (1, 3, 9, 8), "padding": 0}, "its result has one row or column"),
    "groups": ({"groups": 2}, "its channels are in groups"),
    "5x5": ({"kernel": (8, 5, 5), "padding": 2}, "its filters are not 3 x 3"),
    "5x3": ({"kernel": (8, 5, 3)}, "its filters are not 3 x 3"),
    "nchw": ({"layout": "NCHW", "shape": (1, 8, 9, 9)}, "its channels are not innermost"),
    "conv1d": (
        {"layout": "NWC", "shape": (1, 9, 8), "kernel": (8, 3)},
        "it is not a convolution in two dimensions",
    ),
    "float64": ({"dtype": "float64"}, "its operands are not float32 in memory"),
    "1x1": ({"kernel": (8, 1, 1), "padding": 0}, ""),
}


@pytest.mark.parametrize("name", DIRECT)
def test_other_convolutions_are_computed_directly(name: str) -> None:
    options, reason = DIRECT[name]
    options = {"shape": (1, 9, 9, 8), "kernel": (8, 3, 3), "padding": 1, **options}
    program = read_program(programs.conv(options.pop("shape"), options.pop("kernel"), **options))
    assert program is not None
    allowed = next(contraction.alternatives(program, AVX2, 1, frozenset({1}), winograd=True))
    assert allowed.kind == "contraction"
    assert allowed.why == (f"computed directly: {reason}" if reason else "")


def test_weights_that_are_not_constant() -> None:
    program = read_program(programs.conv((1, 30, 30, 64), (64, 3, 3), padding=1))
    assert program is not None
    found = winograd.read_layer(program, frozenset({0, 2}))
    assert found == "its weights are not constant"


def test_a_layer_is_computed_as_the_cost_says() -> None:
    """Both ways of a choice: with few channels, the transforms cost more than they save."""
    kinds = []
    for channels in (64, 2):
        func = programs.conv((1, 28, 28, channels), (channels, 3, 3), padding=1)
        program = read_program(func)
        assert program is not None
        ways = list(contraction.alternatives(program, AVX512, 1, frozenset({1}), winograd=True))
        assert [each.predicted_s for each in ways] == sorted(each.predicted_s for each in ways)
        kinds.append(ways[0].kind)
        for each in ways:
            direct = each.kind == "contraction"
            assert ("is predicted to take" in each.why) == direct
    assert kinds == [F4.name, "contraction"]
    # Not without the caller's word.
    assert {each.kind for each in contraction.alternatives(program, AVX512, 1, frozenset({1}))} == {
        "contraction"
    }


def test_kept_as_json() -> None:
    scheduled = way(programs.conv((1, 9, 9, 8), (17, 3, 3), padding=1), F4, host(1))
    scheduled = replace(scheduled, why="a reason")
    data = to_data(scheduled)
    assert data is not None
    again = from_data(data)
    assert (again.kind, again.why) == (scheduled.kind, scheduled.why)
    weights = np.random.default_rng(3).standard_normal((17, 3, 3, 8)).astype("float32")
    packed = scheduled.packing[1].pack(weights)
    assert packed.shape == scheduled.packing[1].shape
    assert np.array_equal(again.packing[1].pack(weights), packed)


@pytest.mark.full
@pytest.mark.parametrize("transform", [F2, F4])
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_innermost_loops_spill_nothing(transform: Transform, target: Target) -> None:
    """Nothing is stored to the stack in a loop of the transforms or of the products."""
    func = programs.conv((1, 28, 28, 64), (64, 3, 3), padding=1, residual=True)
    scheduled = way(func, transform, target)
    made = for_llvm(scheduled.func).with_attr("global_symbol", "main")
    text = assembly(made, target)
    loops = 0
    for part in re.split(r"^(?=\w[\w.]*:)", text, flags=re.M):
        # Without a frame, %rbp is a pointer like others.
        stack = r"%r[sb]p" if "movq\t%rsp, %rbp" in part else "%rsp"
        for body in innermost_loops(part):
            loops += bool(re.search(r"%[yz]mm", body))
            assert not re.search(rf"%[xyz]mm\d+, [-0-9]*\({stack}[,)]", body), body
    assert loops > 2
