"""What a rule leaves alone, or as it is, because another form of it would be another program.

Names for the same memory, loops that others share, values that are bound or that choose an index,
narrow integers that overflow on a GPU, and sizes that are not known before the function runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from cuda_runs import CUDA, OnCpu, no_gxx
from cuda_runs import scheduled as scheduled_for_cuda
from fuse_epilogue import schedules
from fuse_epilogue.rewrites.shrink_buffers import without_unread
from oracles import assert_same_bits, compile_together
from schedule_programs import LLVM, Programs
from tiers import crossed

PROGRAMS = Programs()

HEAD = """
@T.prim_func(s_tir=True)
def {name}(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20)), z: T.Buffer((3, 20))):
    s = T.sblock_alloc_buffer((3, 20))
"""
CONV = """\
for k in range(3):
    with T.sblock("conv"):
        vc, vi, vk = T.axis.remap("SSR", [c, i, k])
        with T.init():
            s[vc, vi] = T.float32(0)
        s[vc, vi] = s[vc, vi] + {term}
"""
TERM = "x[vc, vi + vk] * w[vc, vk]"
ALL = "for c, i in T.grid(3, 20):\n"


def block(store: str, loops: str = ALL) -> str:
    return f"""\
{loops}    with T.sblock("block"):
        vc, vi = T.axis.remap("SS", [c, i])
        {store}
"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def written(name: str, *parts: str, conv: str = ALL + indented(CONV.format(term=TERM))) -> Any:
    """A function of the texts; "conv" stands for the convolution."""
    text = "".join(conv if part == "conv" else part for part in parts)
    return tvm.script.from_source(HEAD.format(name=name) + indented(text), extra_vars={"T": T})


# ---- Two names for one memory --------------------------------------------------------------------

OTHER_SUMS = "t = T.decl_buffer((60,), data=s.data)\n"
OTHER_RESULT = "t = T.decl_buffer((60,), data=y.data)\n"
ALIASES = {
    "read_by_another_name": (OTHER_SUMS, "conv", block("y[vc, vi] = t[vc * 20 + vi]")),
    "all_read_by_another_name": (
        OTHER_SUMS,
        "conv",
        block("z[vc, vi] = t[vc * 20 + vi]"),
        block("y[vc, vi] = s[vc, vi]", "for c, i in T.grid(3, 10):\n"),
    ),
    "result_read_by_another_name": (
        OTHER_RESULT,
        "conv",
        block("y[vc, vi] = s[vc, vi] + t[vc * 20 + 19 - vi]"),
    ),
    "result_written_by_another_name": (
        OTHER_RESULT,
        "conv",
        block("t[vc * 20 + vi] = s[vc, vi]"),
        block("z[vc, vi] = y[vc, vi]"),
    ),
}


@pytest.mark.parametrize("target", [LLVM, CUDA], ids=["llvm", "cuda"])
@pytest.mark.parametrize("name", ALIASES)
def test_another_name_is_named(name: str, target: Any) -> None:
    func = written(name, *ALIASES[name])
    says = "knows this function .*: its buffer 't' is another name for memory that has one"
    with pytest.raises(ValueError, match=says):
        schedules.apply(func, target)
    assert "not scheduled: its buffer 't' is another name" in schedules.explain(func, target)


@T.prim_func(s_tir=True)
def input_is_the_result(y: T.Buffer((3, 22)), w: T.Buffer((3, 3))):
    x = T.decl_buffer((3, 22), data=y.data)
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@pytest.mark.parametrize("target", [LLVM, CUDA], ids=["llvm", "cuda"])
def test_the_input_is_the_result_by_another_name(target: Any) -> None:
    with pytest.raises(ValueError, match="buffer 'x' is another name"):
        schedules.apply(input_is_the_result, target)


@T.prim_func(s_tir=True)
def region_by_another_name(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20)), z: T.Buffer((3, 20))
):
    s = T.sblock_alloc_buffer((3, 20))
    for c, i, k in T.grid(3, 20, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] = s[vc, vi] + x[vc, vi + vk] * w[vc, vk]
    for c, i in T.grid(3, 20):
        with T.sblock("block"):
            vc, vi = T.axis.remap("SS", [c, i])
            t = T.match_buffer(s[vc, 0:20], (20,), elem_offset=T.int32(), offset_factor=1)
            y[vc, vi] = t[vi] + z[vc, vi]


def test_a_region_has_another_name() -> None:
    with pytest.raises(ValueError, match="buffer 't' is another name"):
        schedules.apply(region_by_another_name, LLVM)


# ---- Loops that others share ---------------------------------------------------------------------

BESIDE = 'with T.sblock("z"):\n    vc, vi = T.axis.remap("SS", [c, i])\n    z[vc, vi] = x[vc, vi]\n'
CUT = {
    "columns": "for c, i in T.grid(3, 10):\n",
    "rows": "for c, i in T.grid(2, 20):\n",
}
SHARED = {
    "columns": ALL + indented(CONV.format(term=TERM)) + indented(BESIDE),
    "rows": (
        "for c in range(3):\n"
        + indented("for i in range(20):\n" + indented(CONV.format(term=TERM)))
        + indented("for i in range(20):\n" + indented(BESIDE))
    ),
}


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("cut", CUT)
def test_unread_in_a_loop_that_is_shared(shared: str, cut: str) -> None:
    func = written("shared", "conv", block("y[vc, vi] = s[vc, vi]", CUT[cut]), conv=SHARED[shared])
    # The columns of the rows' program have a loop that is the convolution's own.
    keeps = (shared, cut) != ("rows", "columns")
    after = without_unread(func)
    assert after.same_as(func) == keeps
    built = compile_together({"before": func, "after": after})
    x, w = np.arange(66, dtype="float32").reshape(3, 22), np.ones((3, 3), "float32")
    results = []
    for name in ("before", "after"):
        arrays = [tvm.runtime.tensor(a) for a in (x, w, *np.full((2, 3, 20), 7, "float32"))]
        built[name](*arrays)
        results.append(np.stack([array.numpy() for array in arrays[2:]]))
    assert_same_bits(results[1], results[0], f"{shared}, {cut}")


# ---- Values with a name, and values as indices ---------------------------------------------------

BOUND = "T.Let(a * a + a, where={a: s[vc, vi] * T.float32(3)})"
LET_TERM = "T.Let(a * w[vc, vk], where={a: x[vc, vi + vk]})"
CHOSEN = "T.Cast('int32', T.min(T.max(s[vc, vi], T.float32(0)), T.float32(19)))"
WITH_VALUES = {
    "bound_in_the_tail": written(
        "bound_in_the_tail", "a = T.float32()\n", "conv", block(f"y[vc, vi] = {BOUND}")
    ),
    "bound_in_the_term": written(
        "bound_in_the_term",
        "a = T.float32()\n",
        "conv",
        block("y[vc, vi] = s[vc, vi]"),
        conv=ALL + indented(CONV.format(term=LET_TERM)),
    ),
    "index_is_the_sum": written(
        "index_is_the_sum", "conv", block(f"y[vc, vi] = z[vc, {CHOSEN}] + s[vc, vi]")
    ),
}
for func in WITH_VALUES.values():
    PROGRAMS.add("rows")(func)


@pytest.fixture(scope="module")
def built() -> Any:
    return PROGRAMS.compile()


@pytest.mark.parametrize("name", PROGRAMS)
def test_form(name: str) -> None:
    PROGRAMS.check_form(name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_result(built: Any, name: str) -> None:
    PROGRAMS.check_result(built, name)


def test_a_value_that_is_bound_once_and_has_effects() -> None:
    effect = "T.Let(a + a, where={a: T.call_extern('float32', 'rand_float', s[vc, vi])})"
    func = written("f", "a = T.float32()\n", "conv", block(f"y[vc, vi] = {effect}"))
    with pytest.raises(ValueError, match="binds with T.Let what may have side effects"):
        schedules.apply(func, LLVM)


# ---- Narrow integers on a GPU --------------------------------------------------------------------

OPERATIONS = {
    "product": "s[vi] * x[vi] // {type}(4)",
    "sum": "(T.max(s[vi], {type}(1)) + x[vi]) // {type}(4)",
    "difference": "(T.max(s[vi], {type}(1)) - x[vi]) // {type}(4)",
    "shift": "T.shift_left(s[vi], {type}(1)) // {type}(3)",
    "complement": "T.bitwise_not(s[vi]) // {type}(2)",  # of signed ones it does not overflow
    "in a maximum": "T.max(s[vi] * {type}(2), {type}(9))",
}
NARROW = """
@T.prim_func(s_tir=True)
def f(x: T.Buffer((34,), "{dtype}"), w: T.Buffer((3,), "{dtype}"), y: T.Buffer((32,), "{dtype}")):
    s = T.sblock_alloc_buffer((32,), "{dtype}")
    for i, k in T.grid(32, 3):
        with T.sblock("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = {type}(0)
            s[vi] = s[vi] + x[vi + vk] * w[vk]
    for i in range(32):
        with T.sblock("tail"):
            vi = T.axis.spatial(32, i)
            y[vi] = {value}
"""


@no_gxx
@crossed(operation=tuple(OPERATIONS), dtype=["int8", "uint8", "int16", "uint16"])
def test_narrow_integers_wrap_around(operation: str, dtype: str) -> None:
    value = OPERATIONS[operation].replace("{type}", f"T.{dtype}")
    text = NARROW.replace("{value}", value).replace("{dtype}", dtype)
    func = tvm.script.from_source(text.replace("{type}", f"T.{dtype}"), extra_vars={"T": T})
    info, rng = np.iinfo(dtype), np.random.default_rng(5)
    x = rng.integers(info.min, info.max, 34, dtype, endpoint=True)
    inputs = [x, rng.integers(0, 3, 3).astype(dtype), np.zeros(32, dtype)]
    before, after = ([tvm.runtime.tensor(array) for array in inputs] for _ in range(2))
    compile_together({"f": func})["f"](*before)
    OnCpu(scheduled_for_cuda(func))(*after)
    assert_same_bits(after[-1].numpy(), before[-1].numpy(), f"{operation}, {dtype}")


# ---- As many rows as the caller says -------------------------------------------------------------


@T.prim_func(s_tir=True)
def symbolic_images_of_a_large_result(
    xx: T.handle, w: T.Buffer((512, 3)), y: T.Buffer((8, 512, 2048))
):
    n = T.int64()
    x = T.match_buffer(xx, (n, 512, 2050))
    for b, c, i, k in T.grid(n, 512, 2048, 3):
        with T.sblock("conv"):
            vb, vc, vi, vk = T.axis.remap("SSSR", [b, c, i, k])
            with T.init():
                y[vb, vc, vi] = T.float32(0)
            y[vb, vc, vi] = y[vb, vc, vi] + x[vb, vc, vi + vk] * w[vc, vk]


def test_a_large_result_of_symbolic_images() -> None:
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    says = schedules.explain(symbolic_images_of_a_large_result, target)
    assert says.splitlines()[-1] == "DepthwiseConv1d: rows, in vectors"
    after = schedules.apply(symbolic_images_of_a_large_result, target)["main"]
    rng = np.random.default_rng(3)
    x, w = rng.integers(-4, 5, (2, 512, 2050)), rng.integers(-4, 5, (512, 3))
    arrays = [x.astype("float32"), w.astype("float32"), np.full((8, 512, 2048), 7, "float32")]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(after, target=LLVM)["main"](*tensors)
    sums = sum(arrays[0][..., k : k + 2048] * arrays[1][:, k, None] for k in range(3))
    result = tensors[-1].numpy()
    assert_same_bits(result[:2], sums, "the images that there are")
    assert_same_bits(result[2:], arrays[2][2:], "the others")
