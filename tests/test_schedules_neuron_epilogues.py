"""Epilogues on Trainium that would change the reduction itself, and parameters of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import from_source
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue import neuron, schedules
from fuse_epilogue.neuron.machine import TRN1
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.trainium import find_conv, find_product, find_rows
from tiers import crossed

#: What is computed of x, the result of a reduction: as a function's text, and by numpy.
STEPS: dict[str, tuple[str, Any]] = {
    "3 - x": ("T.float32(3) - {x}", lambda x, b: 3 - x),
    "b - x": ("bias[v0] - {x}", lambda x, b: b - x),
    "x * -2": ("{x} * T.float32(-2)", lambda x, b: -2 * x),
    "x * b": ("{x} * bias[v0]", lambda x, b: x * b),
    "x + b": ("{x} + bias[v0]", lambda x, b: x + b),
    "max(x, 0)": ("T.max({x}, T.float32(0))", lambda x, b: np.maximum(x, 0)),
    "min(x, 7)": ("T.min({x}, T.float32(7))", lambda x, b: np.minimum(x, 7)),
}
EPILOGUES = [
    ("3 - x",),
    ("b - x",),
    ("x * -2",),
    ("3 - x", "max(x, 0)"),
    ("x + b", "3 - x"),
    ("x * b", "3 - x"),
    ("3 - x", "x + b", "min(x, 7)"),
    ("3 - x", "b - x"),
    ("max(x, 0)", "3 - x"),
]
#: Kind -> what finds it; shapes of the inputs and axes of the result; the sum; the text.
KINDS: dict[str, tuple[Any, list[tuple[int, ...]], int, int, str]] = {
    "sum": (find_rows, [(5, 16)], 1, 16, "{s} + A[v0, vk]"),
    "largest": (find_rows, [(5, 16)], 1, 16, "T.max({s}, A[v0, vk])"),
    "product": (find_product, [(5, 16), (16, 7)], 2, 16, "{s} + A[v0, vk] * B[vk, v1]"),
    "conv": (find_conv, [(5, 9), (5, 3)], 2, 3, "{s} + A[v0, v1 + vk] * B[v0, vk]"),
}


def function(kind: str, epilogue: tuple[str, ...]) -> Any:
    _, inputs, rank, taps, update = KINDS[kind]
    out = (5, 7)[:rank]
    axes = [f"v{i}" for i in range(rank)]
    at, loops = ", ".join(axes), ", ".join(map(str, out))
    start = 'T.min_value("float32")' if kind == "largest" else "T.float32(0)"
    names = [*(f"t{i}" for i in range(len(epilogue))), "Y"]
    params = dict(zip("AB", inputs, strict=False)) | {"bias": (5,), "Y": out}
    lines = ["@T.prim_func(s_tir=True)", "def main("]
    lines += [f'    {name}: T.Buffer({shape}, "float32"),' for name, shape in params.items()]
    lines += ["):"]
    lines += [f'    {name} = T.sblock_alloc_buffer({out}, "float32")' for name in names[:-1]]
    element = f"{names[0]}[{at}]"
    lines += [
        f"    for {', '.join(f'i{i}' for i in range(rank))}, k in T.grid({loops}, {taps}):",
        '        with T.sblock("reduction"):',
        f"            {at}, vk = T.axis.remap("
        f'"{"S" * rank}R", [{", ".join(f"i{i}" for i in range(rank))}, k])',
        "            with T.init():",
        f"                {element} = {start}",
        f"            {element} = {update.format(s=element)}",
    ]
    for place, step in enumerate(epilogue):
        value = STEPS[step][0].format(x=f"{names[place]}[{at}]")
        lines.append(f"    for {', '.join(f'i{i}' for i in range(rank))} in T.grid({loops}):")
        lines.append(f'        with T.sblock("step{place}"):')
        for i in range(rank):
            lines.append(f"            v{i} = T.axis.spatial({out[i]}, i{i})")
        lines.append(f"            {names[place + 1]}[{at}] = {value}")
    return from_source("\n".join(lines) + "\n", extra_vars={"T": T})


def drawn(func: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = [[int(n) for n in param.ty.shape] for param in func.params[:-1]]
    return [rng.integers(-3, 4, shape).astype("float32") for shape in shapes]


def expected(kind: str, epilogue: tuple[str, ...], arrays: list[np.ndarray]) -> np.ndarray:
    a, bias = arrays[0], arrays[-1]
    if kind == "sum":
        x = a.sum(axis=1)
    elif kind == "largest":
        x = a.max(axis=1)
    elif kind == "product":
        x = a @ arrays[1]
    else:
        x = sum(a[:, t : t + 7] * arrays[1][:, t, None] for t in range(3))
    bias = bias if x.ndim == 1 else bias[:, None]
    for step in epilogue:
        x = STEPS[step][1](x, bias)
    return x


@crossed(kind=tuple(KINDS), epilogue=EPILOGUES)
def test_no_epilogue_changes_what_is_summed(kind: str, epilogue: tuple[str, ...]) -> None:
    """Subtracted from something, a sum would become a difference: each way to fuse is right."""
    func = function(kind, epilogue)
    found = KINDS[kind][0](Request(func, TRN1))
    assert found is not None
    arrays = drawn(func)
    right = expected(kind, epilogue, arrays)
    points, _ = found.space.feasible()
    assert set(points["fusion"].tolist()) == {0, 1}
    for way in (0, 1):
        mine = points.take(points["fusion"] == way)
        # The scalar engine, which some points ask for, cannot subtract from something.
        point = next(p for p in map(mine.at, range(mine.size)) if found.is_possible(p))
        np.testing.assert_array_equal(found.kernel(point)(*arrays), right, err_msg=str(way))
    by_rule = neuron.emit(schedules.apply(func, "trn1"))
    np.testing.assert_array_equal(by_rule(*arrays), right)


def test_a_parameter_that_nobody_reads() -> None:
    """Without fusion neither of the two functions has it; the kernel takes it nevertheless."""
    for kind in KINDS:
        func = function(kind, ("x * -2", "max(x, 0)"))
        arrays = drawn(func)
        right = expected(kind, ("x * -2", "max(x, 0)"), arrays)
        found = KINDS[kind][0](Request(func, TRN1))
        points, _ = found.space.feasible()
        point = points.take(points["fusion"] == 0).at(0)
        np.testing.assert_array_equal(found.kernel(point)(*arrays), right)
        kernel = fuse_epilogue.compile(func, "trn1")
        np.testing.assert_array_equal(kernel(*arrays), right)
        assert fuse_epilogue.plan(func, "trn1").explain(verbose=True)


@pytest.mark.parametrize("right", ["a[vk, vj]", "a[vj, vk]"])
def test_a_matrix_times_itself(right: str) -> None:
    text = f"""@T.prim_func(s_tir=True)
def main(a: T.Buffer((16, 16), "float32"), y: T.Buffer((16, 16), "float32")):
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + a[vi, vk] * {right}
"""
    func = from_source(text, extra_vars={"T": T})
    [a] = drawn(func)
    product = a @ (a if right == "a[vk, vj]" else a.T)
    for sch in (schedules.apply(func, "trn1"), fuse_epilogue.plan(func, "trn1").apply(func)):
        kernel = neuron.emit(sch)
        kernel.check("trn1")
        np.testing.assert_array_equal(kernel(a), product)


def test_blocks_of_parameters_whose_names_end_in_numbers() -> None:
    """The second load of "x" must not be called as the first one, of "x1"."""
    text = """@T.prim_func(s_tir=True)
def main(
    x1: T.Buffer((5, 7), "float32"), x: T.Buffer((5, 7), "float32"), y: T.Buffer((5, 7), "float32")
):
    for i, j in T.grid(5, 7):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x1[vi, vj] - x[vi, vj]
"""
    func = from_source(text, extra_vars={"T": T})
    a, b = drawn(func)
    np.testing.assert_array_equal(neuron.emit(schedules.apply(func, "trn1"))(a, b), a - b)
