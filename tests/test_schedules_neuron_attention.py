"""Attention on Trainium: one kernel that checks, and computes what the unfused build does."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from conv_traces import stored
from fuse_epilogue import plan, schedules
from fuse_epilogue.kernels.trainium.attention import Tiling, find_attention, scheduled
from fuse_epilogue.neuron import Kernel, emit
from fuse_epilogue.schedules.neuron import Attention
from kernel_runs import run
from neuron_rules import kernel_by
from test_kernels_attention import chain, drawn, function, reference

Sizes = tuple[int, int, int, int, int]
#: Images, queries, keys, heads, features: one query; tiles that are not full; several banks; two
#: tiles of features, of which the second may be smaller.
SIZES: list[Sizes] = [
    (1, 1, 67, 2, 16),
    (2, 7, 17, 3, 24),
    (1, 130, 257, 2, 16),
    (1, 300, 640, 1, 128),
    (1, 130, 257, 1, 256),
    (1, 9, 140, 2, 200),
]


#: On trn1 all data must be finite.
LATER = ("trn2", "trn3")
kernel_of = partial(kernel_by, Attention(), checked=LATER)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_computes_attention(sizes: Sizes, bias: bool) -> None:
    arrays = drawn(*sizes, bias)
    kernel = kernel_of(function(*sizes, bias=bias))
    np.testing.assert_allclose(kernel(*arrays), reference(*arrays), rtol=0, atol=2e-6)


@pytest.mark.parametrize("causal", ["TopLeft", "BottomRight"])
@pytest.mark.parametrize(("queries", "keys"), [(256, 256), (200, 300)])
def test_causal(queries: int, keys: int, causal: str) -> None:
    sizes = (1, queries, keys, 2, 16)
    func, arrays = function(*sizes, causal=causal), drawn(*sizes)
    expected = run(func, arrays, (1, queries, 2, 16))
    np.testing.assert_allclose(kernel_of(func)(*arrays), expected, rtol=0, atol=2e-6)


def test_weights_that_underflow_are_those_of_the_function() -> None:
    """Relax takes the maximum over masked scores, too, as 0: a row may have no share at all."""
    sizes = (1, 256, 256, 1, 16)
    func, arrays = function(*sizes, causal="TopLeft"), drawn(*sizes)
    arrays[0][0, 5] = 100
    arrays[1][:] = -abs(arrays[1])
    expected = run(func, arrays, (1, 256, 1, 16))
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    np.testing.assert_allclose(kernel_of(func)(*arrays), expected, rtol=0, atol=2e-6)


def test_exact_sums_are_exact() -> None:
    """Equal scores and 64 keys: every share is 1 / 64, and sums of integers are exact."""
    sizes = (1, 9, 64, 2, 8)
    func, arrays = function(*sizes), drawn(*sizes)
    arrays[0][:] = 0
    arrays[2] = np.round(arrays[2] * 8)
    expected = run(func, arrays, (1, 9, 2, 8))
    np.testing.assert_array_equal(kernel_of(func)(*arrays), expected)


def test_special_values() -> None:
    """Infinities and NaN give what they do without fusing, in the same rows."""
    sizes = (1, 12, 160, 2, 8)
    func, arrays = function(*sizes, bias=True), drawn(*sizes, True)
    q, k, v, bias = arrays
    bias[0, 0, :, 20:] = -np.inf
    bias[0, 1, 3] = -np.inf
    q[0, 4, 1, 2] = np.nan
    k[0, 150, 0, 3] = np.inf
    v[0, 42, 1, 2] = np.inf
    expected = run(func, arrays, (1, 12, 2, 8))
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kernel_of(func)(*arrays), expected, rtol=0, atol=2e-6)


def written_out(
    queries: int = 130,
    keys: int = 140,
    depth: int = 16,
    columns: int = 24,
    dtype: str = "float32",
    values_by_column: bool = False,
    mask_by_key: bool = False,
    result: Any = None,
    scale: float | None = None,
) -> Any:
    """Attention in te, of one head."""
    q = te.placeholder((queries, depth), dtype, "q")
    k = te.placeholder((keys, depth), dtype, "k")
    v = te.placeholder((columns, keys) if values_by_column else (keys, columns), dtype, "v")
    mask = te.placeholder((keys, queries), "float32", "mask")
    d = te.reduce_axis((0, depth), "d")
    j = [te.reduce_axis((0, keys), f"j{place}") for place in range(3)]

    def wide(value: Any) -> Any:
        return value if dtype == "float32" else value.astype("float32")

    scores = te.compute((queries, keys), lambda i, c: te.sum(wide(q[i, d]) * wide(k[c, d]), d), "s")

    def weight(i: Any, c: Any) -> Any:
        if scale is not None:
            return scores[i, c] * tirx.const(scale, "float32")
        return scores[i, c] + mask[c, i] if mask_by_key else scores[i, c]

    top = te.compute((queries,), lambda i: te.max(weight(i, j[0]), j[0]), "top")

    def share(i: Any, c: Any) -> Any:
        return te.exp(weight(i, c) - top[i])

    total = te.compute((queries,), lambda i: te.sum(share(i, j[1]), j[1]), "total")

    def value(c: Any, column: Any) -> Any:
        return wide(v[column, c] if values_by_column else v[c, column])

    out = te.compute(
        (queries, columns),
        lambda i, c: te.sum(share(i, j[2]) / total[i] * value(j[2], c), j[2]),
        "out",
    )
    if result is not None:
        summed = out
        out = te.compute((queries, columns), lambda i, c: result(summed[i, c], i), "last")
    return te.create_prim_func([q, k, v, *([mask] if mask_by_key else []), out])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_operands(dtype: str) -> None:
    """They are multiplied as they are, and widened where shares are multiplied with them."""
    kernel = kernel_of(written_out(dtype=dtype))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(t) for s, t in kernel.inputs.values()]
    q, k, v = (array.astype(np.float64) for array in arrays)
    e = np.exp(q @ k.T - (q @ k.T).max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=1e-5, atol=1e-5)
    assert {s.op for s in kernel.trace().steps} >= {"nc_matmul", "nc_transpose"}


ROUNDED = Attention(round_shares=True)


def rounded(queries: int, keys: int, dtype: str, **options: Any) -> tuple[Kernel, Any]:
    """A kernel with shares of 16 bits, and attention in float64 on numbers of that type."""
    func = written_out(queries, keys, dtype=dtype, **options)
    return kernel_by(ROUNDED, func, checked=LATER), func


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("queries", "keys"), [(130, 140), (5, 1100), (300, 513)])
def test_rounded_shares(queries: int, keys: int, dtype: str) -> None:
    """Each result is within the error of the type, relative to the largest value of its column."""
    kernel, _ = rounded(queries, keys, dtype)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(t) for s, t in kernel.inputs.values()]
    q, k, v = (array.astype(np.float64) for array in arrays)
    e = np.exp(q @ k.T - (q @ k.T).max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True) @ v
    error = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert (abs(kernel(*arrays) - expected) <= error * abs(v).max(0) + 1e-5).all()
    shares = {s.dst.dtype for s in kernel.trace().steps if s.op == "activation_reduce"}
    assert shares == {dtype}


def test_sums_of_rounded_shares_are_those_before() -> None:
    """256 keys of which one has all of the weight but 255 * e^-9: 1.03147 when rounded apart."""
    kernel, _ = rounded(1, 256, "bfloat16", depth=1, columns=1)
    q, k, v = np.ones((1, 1)), np.full((256, 1), -9.0), np.zeros((256, 1))
    k[7], v[7] = 0, 1
    arrays = [x.astype(t) for x, (_, t) in zip((q, k, v), kernel.inputs.values(), strict=True)]
    expected = 1 / (1 + 255 * np.exp(-9.0))
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=1e-6)


def test_values_in_float32_are_not_rounded() -> None:
    func = written_out()
    ours, usual = ROUNDED.choose(func, "trn2").schedule, Attention().choose(func, "trn2").schedule
    assert ours is not None and usual is not None
    tvm.ir.assert_structural_equal(ours.mod, usual.mod)
    with pytest.raises(s_tir.ScheduleError, match="its values are in float32"):
        scheduled(find_attention(func), Tiling(round_shares=True))


@pytest.mark.parametrize("rounds", [False, True])
def test_a_narrow_result(rounds: bool) -> None:
    """Operands and results of 16 bits, as in a model of that type."""
    func = written_out(dtype="bfloat16", result=lambda x, _: x.astype("bfloat16"))
    kernel = kernel_by(Attention(round_shares=rounds), func, checked=LATER)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(t) for s, t in kernel.inputs.values()]
    q, k, v = (array.astype(np.float64) for array in arrays)
    e = np.exp(q @ k.T - (q @ k.T).max(-1, keepdims=True))
    y = kernel(*arrays)
    assert str(y.dtype) == "bfloat16"
    expected = e / e.sum(-1, keepdims=True) @ v
    bound = 2.0**-8 * (abs(expected) + rounds * abs(v).max(0)) + 1e-5
    assert (abs(y.astype(np.float64) - expected) <= bound).all()


def test_together_is_limited_by_a_bank() -> None:
    found = find_attention(written_out(dtype="bfloat16"))
    scheduled(found, Tiling(together=8, round_shares=True))
    for tiling in (Tiling(together=9, round_shares=True), Tiling(together=5)):
        with pytest.raises(
            s_tir.ScheduleError, match="done together must be from 1 to [48], not [95]"
        ):
            scheduled(found, tiling)


def test_the_trace_of_rounded_shares_replays() -> None:
    func = written_out(dtype="bfloat16")
    sch = ROUNDED.apply(func, "trn2")
    assert sch is not None
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_what_follows_is_computed_on_the_chip() -> None:
    func = written_out(result=lambda x, _: te.max(x, tirx.const(0, "float32")) * 2.0)
    kernel = kernel_of(func)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(t) for s, t in kernel.inputs.values()]
    expected = run(func, arrays, (130, 24))
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[Any, str]] = {
    "wide values": (lambda: written_out(columns=513), "513 columns, and a bank of PSUM holds 512"),
    "long rows": (lambda: written_out(2, 70_000), "sbuf-capacity"),
    "values by column": (lambda: written_out(values_by_column=True), "transpose them before"),
    "a mask by key": (lambda: written_out(mask_by_key=True), "keys are not its last axis"),
    "a tail with a place": (
        lambda: written_out(result=lambda x, i: x * i.astype("float32")),
        "reads more than its result",
    ),
    "another sum": (lambda: chain("another row's sum"), "it is not a product, a softmax"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, why = REFUSED[name]
    choice = Attention().choose(make(), "trn2")
    assert choice.schedule is None
    assert re.search(why, choice.why), choice.why


def test_limits_are_taken() -> None:
    for func in (written_out(depth=129), written_out(columns=512), written_out(2, 4_000)):
        assert Attention().choose(func, "trn2").schedule is not None


def test_on_trn1_data_must_be_finite() -> None:
    func = function(1, 8, 8, 1, 8)
    assert "Attention(finite=True)" in Attention().choose(func, "trn1").why
    kernel_by(Attention(finite=True), func, "trn1")


@pytest.mark.parametrize("causal", [None, "TopLeft"])
def test_the_trace_replays(causal: str | None) -> None:
    func = function(1, 200, 256, 2, 16, causal=causal)
    sch = Attention().apply(func, "trn2")
    assert sch is not None
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_apply_takes_the_plan() -> None:
    func = function(1, 128, 128, 2, 16)
    planned = emit(plan(func, "trn2").apply(func))
    assert emit(schedules.apply(func, "trn2")).source == planned.source


@pytest.mark.full
def test_the_tensor_engine_is_busy_most_of_the_time() -> None:
    """Products and transpositions in float32; a causal mask leaves out almost half of both."""
    whole = kernel_of(function(1, 2048, 2048, 2, 128)).predict("trn2")
    assert whole.latency_ms < 1.35 * whole.busy_ms["tensor"]
    causal = kernel_of(function(1, 2048, 2048, 2, 128, causal="TopLeft")).predict("trn2")
    assert causal.latency_ms < 0.65 * whole.latency_ms


def test_rounded_shares_take_the_tensor_engine_one_pass() -> None:
    """Not four: shares are transposed and multiplied in bfloat16, as scores are computed anyway."""
    func = written_out(2048, 2048, 128, 128, "bfloat16", scale=0.125)
    choices = [rule.choose(func, "trn2").schedule for rule in (ROUNDED, Attention())]
    rounded, usual = (emit(each).predict("trn2") for each in choices if each is not None)
    # Of 1 + 4 + 4 passes 1 + 1 + 1 are left; transpositions of queries and keys are in both.
    assert rounded.busy_ms["tensor"] < usual.busy_ms["tensor"] / 2
    assert rounded.latency_ms < usual.latency_ms
