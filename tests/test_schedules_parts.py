"""The parts of the schedules: unread columns, guards, exp and sigmoid, `apply`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir import dlight
from tvm.script import tirx as T
from tvm.target import Target

from fuse_epilogue import schedules
from fuse_epilogue.schedules import cpu
from fuse_epilogue.schedules.convolution import find_depthwise_conv
from fuse_epilogue.schedules.cpu.functions import with_vector_functions
from fuse_epilogue.schedules.prepare import prepare
from fuse_epilogue.schedules.unread import without_unread
from fuse_epilogue.workloads import depthwise_conv1d
from fused_block import blocks
from oracles import compile_together

LLVM = Target("llvm")

# ---- Unread --------------------------------------------------------------------------------------


def two_blocks(read: str, columns: Any = 6, more: str = "") -> Any:
    """A function with s[4, 10] = x * 2, and y[3, columns] = what `read` says."""
    lines = f"""
@T.prim_func(s_tir=True)
def f(x: T.Buffer((4, 10)), p: T.Buffer((10,), "int32"), y: T.Buffer((4, 40)),
      z: T.Buffer((4, 40))):
    s = T.sblock_alloc_buffer((4, 10))
    for c, i in T.grid(4, 10):
        with T.sblock("s"):
            vc, vi = T.axis.remap("SS", [c, i])
            s[vc, vi] = x[vc, vi] * T.float32(2)
    {more}
    for c, i in T.grid(3, {columns}):
        with T.sblock("y"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = {read}
"""
    return tvm.script.from_source(lines, {"T": T})


ANOTHER = """for c, i in T.grid(2, 9):
        with T.sblock("z"):
            vc, vi = T.axis.remap("SS", [c, i])
            z[vc, vi] = s[vc, vi]"""
WRITER = """for c, i in T.grid(4, 2):
        with T.sblock("w"):
            vc, vi = T.axis.remap("SS", [c, i])
            s[vc, vi] = x[vc, vi]"""
OPAQUE = """for c in range(1):
        with T.sblock("o"):
            vc = T.axis.spatial(1, c)
            T.reads(s[0, 0:10])
            T.writes(z[0, 0])
            T.evaluate(T.call_extern("int32", "g", T.address_of(s[0, 0]), T.address_of(z[0, 0])))"""

UNREAD = {
    "a corner": ("s[vc, vi]", 6, "", (3, 6)),
    "from an offset": ("s[vc + 1, vi + 2]", 6, "", (4, 8)),
    "every second": ("s[vc, vi * 2]", 4, "", (3, 7)),
    "a sum of axes": ("s[vc, vi + vc]", 6, "", (3, 8)),
    "two loads": ("s[vc, vi] + s[0, vi + 1]", 6, "", (3, 7)),
    "one element": ("s[2, 3]", 6, "", (3, 4)),
    "all": ("s[vc + 1, vi]", 10, "", (4, 10)),
    "reversed": ("s[vc, 9 - vi]", 6, "", (3, 10)),
    "an unknown index": ("s[vc, p[vi]]", 6, "", (3, 10)),
    "another reader": ("s[vc, vi]", 6, ANOTHER, (3, 9)),
    "another writer": ("s[vc, vi]", 6, WRITER, (4, 10)),
    "an address taken": ("s[vc, vi]", 6, OPAQUE, (4, 10)),
    "modulo": ("s[vc, (vi + 7) % 10]", 6, "", (3, 10)),
    "under a condition": ("T.if_then_else(vi < 6, s[vc, vi], T.float32(0))", 12, "", (3, 10)),
}


def shape_of_s(func: Any) -> tuple[int, ...]:
    (s,) = (buffer for buffer in func.body.block.alloc_buffers if buffer.name == "s")
    return tuple(int(size) for size in s.ty.shape)


@pytest.mark.parametrize("name", UNREAD)
def test_unread_elements_are_left_out(name: str) -> None:
    """The writer's loops and axes, and the buffer, end where the readers do."""
    read, columns, more, shape = UNREAD[name]
    before = two_blocks(read, columns, more)
    after = without_unread(before)
    assert shape_of_s(after) == shape
    assert (after is before) == (shape == (4, 10))
    writer = blocks(after)["s"]
    assert tuple(int(axis.dom.extent) for axis in writer.iter_vars) == shape
    if "extern" in more:
        return
    built = compile_together({"before": before, "after": after}, opt_level=0)
    rng = np.random.default_rng(1)
    arrays = [
        rng.standard_normal((4, 10)).astype("float32"),
        rng.integers(0, 10, 10).astype("int32"),
        *np.zeros((2, 4, 40), "float32"),
    ]
    one, other = ([tvm.runtime.tensor(a) for a in arrays] for _ in range(2))
    built["before"](*one)
    built["after"](*other)
    for index in (2, 3):
        np.testing.assert_array_equal(one[index].numpy(), other[index].numpy())


def test_results_are_not_shrunk() -> None:
    """What is a parameter is read by the caller."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((10,)), s: T.Buffer((10,)), y: T.Buffer((6,))):
        for i in range(10):
            with T.sblock("s"):
                vi = T.axis.spatial(10, i)
                s[vi] = x[vi]
        for i in range(6):
            with T.sblock("y"):
                vi = T.axis.spatial(6, i)
                y[vi] = s[vi]

    assert without_unread(func) is func


def test_unread_in_a_chain() -> None:
    """What a shrunk block no longer reads is left out as well."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((12,)), y: T.Buffer((6,))):
        r = T.sblock_alloc_buffer((12,))
        s = T.sblock_alloc_buffer((10,))
        for i in range(12):
            with T.sblock("r"):
                vi = T.axis.spatial(12, i)
                r[vi] = x[vi]
        for i in range(10):
            with T.sblock("s"):
                vi = T.axis.spatial(10, i)
                s[vi] = r[vi] + r[vi + 2]
        for i in range(6):
            with T.sblock("y"):
                vi = T.axis.spatial(6, i)
                y[vi] = s[vi]

    after = without_unread(func)
    assert [int(b.ty.shape[0]) for b in after.body.block.alloc_buffers] == [8, 6]


def test_unread_of_symbolic_size() -> None:
    func = depthwise_conv1d("n", 3, "w", 3, padding="causal")
    assert without_unread(func) is func


# ---- Guards of a symbolic width ------------------------------------------------------------------


def symbolic(condition: str, columns: str = "w") -> Any:
    lines = f"""
@T.prim_func(s_tir=True)
def f(xx: T.handle, ww: T.handle, yy: T.handle):
    w = T.int64()
    x = T.match_buffer(xx, (3, w))
    weight = T.match_buffer(ww, (3, 3))
    y = T.match_buffer(yy, (3, {columns}))
    for c, i, k in T.grid(3, {columns}, T.int64(3)):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + weight[vc, vk] * {condition}
"""
    return tvm.script.from_source(lines, {"T": T})


GUARDS = {
    "T.if_then_else({0} >= 1 and {0} < w + 1, x[vc, {0} - 1], T.float32(0))": True,
    "T.if_then_else({0} > 0 and {0} <= w, x[vc, {0} - 1], T.float32(0))": True,
    "T.if_then_else({0} >= 1 and {0} < w, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 1 and {0} < w + 2, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 0 and {0} < w + 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 2 and {0} < w + 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} < w + 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 1, x[vc, {0} - 1], T.float32(0))": False,
    "T.if_then_else({0} >= 1 and {0} < w + 1, x[vc, {0} - 1], T.Cast('float32', vi))": False,
    "x[vc, {0}]": False,
}


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_of_a_symbolic_width(guard: str) -> None:
    prepared = prepare(symbolic(guard.format("vi + vk")))
    assert prepared is not None
    sch, conv = prepared
    assert (find_depthwise_conv(sch.get(conv)) is not None) == GUARDS[guard]


def test_no_guard_of_a_symbolic_width() -> None:
    sch, conv = prepare(symbolic("x[vc, vi + vk]", "w - 2"))
    found = find_depthwise_conv(sch.get(conv))
    assert found.outside is None and found.taps == 3


@pytest.mark.parametrize("stride, dilation, start", [(1, 1, 0), (7, 1, 2), (1, 90, 5), (5, 13, 40)])
def test_numbers(stride: int, dilation: int, start: int) -> None:
    func = depthwise_conv1d(2, 3, 99, 4, stride=stride, dilation=dilation, padding=(start, 300))
    sch, conv = prepare(func)
    found = find_depthwise_conv(sch.get(conv))
    assert (found.stride, found.dilation, found.start) == (stride, dilation, -start)
    assert (found.taps, found.width, found.axis) == (4, 99, 2)


# ---- Functions -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def functions() -> Any:
    made = {}
    formulas = {
        "exp": "T.exp(x[vi])",
        "sigmoid": "T.sigmoid(x[vi])",
        "silu": "x[vi] * T.sigmoid(x[vi])",
    }
    for name, formula in formulas.items():
        lines = f"""
@T.prim_func(s_tir=True)
def f(xx: T.handle, yy: T.handle):
    n = T.int64()
    x = T.match_buffer(xx, (n,))
    y = T.match_buffer(yy, (n,))
    for i in range(n):
        with T.sblock("b"):
            vi = T.axis.spatial(n, i)
            y[vi] = {formula}
"""
        func = with_vector_functions(tvm.script.from_source(lines, {"T": T}))
        assert not any(call in func.script() for call in ("T.exp(", "T.sigmoid("))
        made[name] = func
    built = compile_together(made, opt_level=2)

    def run(name: str, x: np.ndarray) -> np.ndarray:
        arguments = [tvm.runtime.tensor(x.astype("float32")) for _ in range(2)]
        built[name](*arguments)
        return np.asarray(arguments[1].numpy())

    return run


def points() -> np.ndarray:
    """Everything from where exp is 0 to where it is infinite, and around every n * ln 2 / 2."""
    near = np.arange(-305, 260) * np.log(2) / 2
    steps = [np.nextafter(near.astype("float32"), np.float32(end)) for end in (-np.inf, np.inf)]
    tiny = 10.0 ** np.arange(-45, 0)
    everything = [np.linspace(-110, 92, 1_000_000), near, *steps, tiny, -tiny]
    return np.concatenate(everything).astype("float32")


def units(value: np.ndarray) -> np.ndarray:
    """The distance of neighbours in float32 at the exact value; denormal ones included."""
    largest = np.nextafter(np.finfo("float32").max, np.float32(0))
    return np.spacing(np.minimum(np.abs(value), largest).astype("float32")).astype("float64")


def test_exp_is_within_two_units(functions: Any) -> None:
    x = points()
    exact = np.exp(x.astype("float64"))
    limit = float(np.finfo("float32").max)
    finite = exact <= limit
    actual = functions("exp", x).astype("float64")
    assert (np.abs(actual - exact)[finite] <= 2 * units(exact)[finite]).all()
    # Beyond the largest number by more than the error, there is only infinity.
    assert np.isinf(actual[exact > limit + 2 * units(np.array([limit]))[0]]).all()


def test_sigmoid_is_within_six_units(functions: Any) -> None:
    """The two of exp, and a rounding each of the sum and the quotient, doubled by a carry."""
    x = points()
    exact = 1 / (1 + np.exp(-x.astype("float64")))
    actual = functions("sigmoid", x).astype("float64")
    normal = x > -87  # Below, exp(-x) overflows before its inverse is denormal.
    assert (np.abs(actual - exact)[normal] <= 6 * units(exact)[normal]).all()
    assert ((actual >= 0) & (actual <= 2 * np.exp(-87)))[~normal].all()


def test_silu_is_within_six_units(functions: Any) -> None:
    """As sigmoid. Where exp(-x) is above 2**127 its series runs up to r = 0.7, whose remainder is
    below 0.7**8 / 8! * 1.1 = 13 units, besides.
    """
    x = np.concatenate([points(), np.linspace(-88.72, -88, 5000).astype("float32")])
    x = x[(x > -88.72) & (x < 80)]
    exact = x.astype("float64") / (1 + np.exp(-x.astype("float64")))
    off = np.abs(functions("silu", x).astype("float64") - exact) / units(exact)
    assert off[x > -88].max() <= 6
    assert off.max() <= 6 + 13


def test_special_values(functions: Any) -> None:
    tiny = np.finfo("float32").smallest_subnormal
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 1e38, -1e38], "float32")
    exp = [np.nan, np.inf, 0, 1, 1, 1, 1, np.inf, 0]
    sigmoid = [np.nan, 1, 0, 0.5, 0.5, 0.5, 0.5, 1, 0]
    np.testing.assert_array_equal(functions("exp", x), np.array(exp, "float32"))
    np.testing.assert_array_equal(functions("sigmoid", x), np.array(sigmoid, "float32"))
    silu = [np.nan, np.inf, np.nan, 0, -0.0, tiny / 2, -tiny / 2, 1e38, -0.0]
    np.testing.assert_array_equal(functions("silu", x), np.array(silu, "float32"))
    assert not np.signbit(functions("exp", x)[1:]).any()


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types_are_left_alone(dtype: str) -> None:
    x = tvm.tirx.decl_buffer((4,), dtype, "x")
    store = tvm.tirx.BufferStore(x, tvm.tirx.exp(x[0]), [0])
    func = tvm.tirx.PrimFunc([x], store)
    tvm.ir.assert_structural_equal(with_vector_functions(func), func)


# ---- apply, and the rule in TVM's pass -----------------------------------------------------------


@T.prim_func(s_tir=True)
def doubled(x: T.Buffer((8,)), y: T.Buffer((8,))):
    for i in range(8):
        with T.sblock("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = x[vi] * T.float32(2)


@pytest.mark.parametrize("target", ["llvm", {"kind": "llvm", "opt-level": 1}, LLVM], ids=str)
def test_apply_takes_any_form_of_target(target: Any) -> None:
    mod = schedules.apply(depthwise_conv1d(1, 2, 9, 3), target)
    assert [var.name_hint for var in mod.get_global_vars()] == ["main"]
    assert list(blocks(mod["main"])) == ["rows"]
    assert bool(mod["main"].attrs["tirx.is_scheduled"])


def test_apply_refuses() -> None:
    func = depthwise_conv1d(1, 2, 9, 3)
    with pytest.raises(TypeError, match="^func must be a PrimFunc, not IRModule$"):
        schedules.apply(tvm.IRModule({"main": func}), "llvm")
    with pytest.raises(TypeError, match="not Function$"):
        schedules.apply(relax.Function([], relax.ShapeExpr([1])), "llvm")
    with pytest.raises(ValueError, match="target kind 'c', only for cuda, llvm"):
        schedules.apply(func, "c")
    with pytest.raises(ValueError, match="'llvm' knows this function .known: DepthwiseConv1d.: it"):
        schedules.apply(doubled, "llvm")
    # It is scheduled, and is no longer a convolution that stands alone.
    with pytest.raises(ValueError, match="not scheduled"):
        schedules.apply(schedules.apply(func, "llvm")["main"], "llvm")


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": "causal", "layout": "NWC"}])
def test_apply_leaves_its_argument_alone(options: dict) -> None:
    func = depthwise_conv1d(1, 2, 9, 3, activation="silu", **options)
    schedules.apply(func, "llvm")
    again = depthwise_conv1d(1, 2, 9, 3, activation="silu", **options)
    tvm.ir.assert_structural_equal(func, again)


def test_other_kinds_of_targets() -> None:
    func = depthwise_conv1d(1, 2, 9, 3)
    for target in ({"kind": "cuda", "arch": "sm_80"}, "c"):
        assert cpu.DepthwiseConv1d().apply(func, Target(target)) is None


def test_in_a_module() -> None:
    """What the rule does not know stays as it is, under its name and at its place."""
    conv = depthwise_conv1d(1, 2, 9, 3)
    given = schedules.apply(depthwise_conv1d(1, 2, 9, 5), "llvm")["main"]
    functions = {"z": conv, "a": doubled, "done": given, "m": depthwise_conv1d(1, 2, 9, 4)}
    before = tvm.IRModule(
        {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    )
    with LLVM:
        after = dlight.ApplyDefaultSchedule(cpu.DepthwiseConv1d())(before)
    assert list(map(str, after.functions)) == list(map(str, before.functions))
    for name in ("a", "done"):
        tvm.ir.assert_structural_equal(after[name], before[name])
    for name in ("z", "m"):
        assert list(blocks(after[name])) == ["rows"]
        assert after[name].attrs["global_symbol"] == name
