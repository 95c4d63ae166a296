"""Products of short integers: summed by words, exactly, for every value of their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, topi
from tvm.target import Target

from fuse_epilogue.kernels.cpu import contraction
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.cpu import for_llvm
from kernel_runs import run
from test_kernels_contraction import assembly, innermost_loops


def x86(mcpu: str) -> Target:
    return Target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu"})


#: Pairs only, and words of four bytes.
AVX2, VNNI = x86("core-avx2"), x86("sapphirerapids")


def product(
    m: int, n: int, k: int, types: tuple[str, str], zero: bool = False, turned: bool = False
) -> Any:
    """Return a product of matrices; with `zero`, one number is subtracted from `a` before."""
    a = te.placeholder((m, k), types[0], "a")
    b = te.placeholder((n, k) if turned else (k, n), types[1], "b")
    point = te.placeholder((), types[0], "point")
    at = te.reduce_axis((0, k), "k")

    def element(i: Any, j: Any) -> Any:
        left = a[i, at].astype("int32")
        if zero:
            left = left - point().astype("int32")
        return te.sum(left * b[(j, at) if turned else (at, j)].astype("int32"), at)

    inputs = [a, b, point] if zero else [a, b]
    y = te.compute((m, n), element, "y")
    return te.create_prim_func([*inputs, y]).with_attr("tirx.noalias", True)


def conv(shape: tuple[int, ...], filters: int, size: int, stride: int, layout: str) -> Any:
    channels = shape[layout.index("C")]
    weights = {"NHWC": (filters, size, size, channels), "NCHW": (filters, channels, size, size)}
    x = te.placeholder(shape, "uint8", "x")
    w = te.placeholder(weights[layout], "int8", "w")
    order = {"NHWC": "OHWI", "NCHW": "OIHW"}[layout]
    y = topi.nn.conv(x, w, stride, size // 2, 1, 1, layout, order, "int32")
    return te.create_prim_func([x, w, y]).with_attr("tirx.noalias", True)


def extremes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers that are the least or the greatest of their type, for the most part."""
    ends = np.iinfo(dtype)
    chosen = rng.choice([ends.min, ends.max, 0, ends.min + 1], shape)
    return chosen.astype(dtype)


def instruction_of(found: Any) -> str | None:
    """Return the instruction of a kernel, None if it multiplies one by one."""
    return next((name for name in ("vpdpbusd", "pmadd") if name in str(found.func)), None)


def computed(func: Any, arrays: list[np.ndarray], constants: set[int]) -> np.ndarray:
    program = read_program(func)
    assert program is not None
    found = next(contraction.alternatives(program, host(1), 1, frozenset(constants)), None)
    assert found is not None
    # On the machine of the tests, whatever it is, instructions may be missing.
    if contraction.machine_of(host(1), 1).instructions:
        assert instruction_of(found) is not None
    packed = [
        found.packing[place].pack(array) if place in found.packing else array
        for place, array in enumerate(arrays)
    ]
    out = program.outputs[0]
    return run(found.func, packed, tuple(map(int, out.shape)), "int32")


@pytest.mark.parametrize(
    ("types", "m", "n", "k", "constants"),
    [
        (("uint8", "int8"), 17, 40, 33, {1}),
        (("uint8", "uint8"), 33, 2, 6, set()),
        (("int8", "int8"), 1, 3, 129, {1}),
        (("int16", "int16"), 7, 19, 64, {0}),
        (("int8", "uint8"), 9, 33, 30, {1}),
        (("int8", "int8"), 31, 70, 64, set()),
        (("int8", "int8"), 13, 5, 7, {0}),
    ],
)
def test_products_are_exact_at_the_ends_of_the_types(
    types: tuple[str, str], m: int, n: int, k: int, constants: set[int]
) -> None:
    rng = np.random.default_rng(m + k)
    a, b = extremes(rng, (m, k), types[0]), extremes(rng, (k, n), types[1])
    # Two products of 2^30 in a pair do not fit in 31 bits: both sides wrap around.
    expected = (a.astype("int64") @ b.astype("int64")).astype("int32")
    assert np.array_equal(computed(product(m, n, k, types), [a, b], constants), expected)


def test_zero_points_are_subtracted_before() -> None:
    rng = np.random.default_rng(0)
    a, b = extremes(rng, (9, 31), "uint8"), extremes(rng, (21, 31), "int8")
    point = np.array(255, "uint8")
    func = product(9, 21, 31, ("uint8", "int8"), zero=True, turned=True)
    expected = (a.astype("int32") - 255) @ b.T.astype("int32")
    assert np.array_equal(computed(func, [a, b, point], {1}), expected)
    assert np.array_equal(computed(func, [a, b, point], set()), expected)


@pytest.mark.parametrize(
    ("layout", "channels", "filters", "size", "stride"),
    [("NHWC", 3, 20, 7, 2), ("NCHW", 3, 9, 5, 2), ("NHWC", 8, 24, 3, 1), ("NHWC", 5, 9, 1, 2)],
)
def test_convolutions_are_those_of_the_unscheduled_function(
    layout: str, channels: int, filters: int, size: int, stride: int
) -> None:
    rng = np.random.default_rng(channels)
    sizes = {"N": 2, "H": 9, "W": 11, "C": channels}
    shape = tuple(sizes[axis] for axis in layout)
    func = conv(shape, filters, size, stride, layout)
    params = read_program(func).params
    arrays = [extremes(rng, tuple(map(int, p.shape)), str(p.dtype)) for p in params[:2]]
    out = tuple(map(int, params[2].shape))
    assert np.array_equal(computed(func, arrays, {1}), run(func, arrays, out, "int32"))


@pytest.mark.parametrize(
    "change", ["sums of 16 bits", "operands of 32 bits", "wraps around", "floats"]
)
def test_other_types_are_not_summed_by_words(change: str) -> None:
    a = te.placeholder((8, 8), {"operands of 32 bits": "int32"}.get(change, "int8"), "a")
    b = te.placeholder((8, 16), "int8", "b")
    total = {"sums of 16 bits": "int16", "floats": "float32"}.get(change, "int32")
    at = te.reduce_axis((0, 8), "k")

    def left(i: Any) -> Any:
        value = a[i, at]
        # Of a negative number, 65,535 at most.
        return value.astype("uint16") if change == "wraps around" else value

    y = te.compute(
        (8, 16),
        lambda i, j: te.sum(left(i).astype(total) * b[at, j].astype(total), at),
        "y",
    )
    program = read_program(te.create_prim_func([a, b, y]))
    for target in (AVX2, VNNI):
        found = next(contraction.alternatives(program, target, 1, frozenset({1})), None)
        assert found is None or instruction_of(found) is None


@pytest.mark.parametrize("constants", [{1}, set()])
@pytest.mark.parametrize(
    ("types", "instruction"),
    [
        (("uint8", "int8"), "vpdpbusd"),
        (("int8", "int8"), "vpdpbusd"),
        (("int8", "uint8"), "vpdpbusd"),
        # vpdpbusd has a signed factor.
        (("uint8", "uint8"), "pmadd"),
        (("int8", "int16"), "pmadd"),
    ],
)
def test_the_instruction_is_that_of_the_types(
    types: tuple[str, str], instruction: str, constants: set[int]
) -> None:
    program = read_program(product(61, 72, 200, types))
    found = next(contraction.alternatives(program, VNNI, 1, frozenset(constants)), None)
    assert instruction_of(found) == instruction
    older = next(contraction.alternatives(program, AVX2, 1, frozenset(constants)), None)
    assert instruction_of(older) == "pmadd"


def test_a_range_that_needs_nine_bits_is_summed_in_pairs() -> None:
    program = read_program(product(61, 72, 200, ("uint8", "int8"), zero=True, turned=True))
    found = next(contraction.alternatives(program, VNNI, 1, frozenset({1})), None)
    assert instruction_of(found) == "pmadd"


@pytest.mark.parametrize(
    ("mcpu", "instruction"),
    [
        ("core-avx2", r"vpmaddwd"),
        ("skylake-avx512", r"vpmaddwd"),
        ("sapphirerapids", r"vpdpbusd"),
        ("alderlake", r"vpdpbusd"),
    ],
)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_the_innermost_loop_has_the_instruction_and_no_stack(
    mcpu: str, instruction: str, kind: str
) -> None:
    target = x86(mcpu)
    program = read_program(product(61, 72, 200, (kind, "int8")))
    found = next(contraction.alternatives(program, target, 1, frozenset({1})), None)
    func = for_llvm(found.func).with_attr("global_symbol", "main")
    loops = [body for body in innermost_loops(assembly(func, target)) if instruction in body]
    assert loops
    assert all("rsp" not in body for body in loops)


def test_processors_without_the_instruction_compute_single_products() -> None:
    target = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    program = read_program(product(17, 40, 33, ("int8", "int8")))
    found = next(contraction.alternatives(program, target, 1, frozenset({1})), None)
    assert found is not None and instruction_of(found) is None
