"""2-D convolutions on Trainium: products that check, and compute what TVM does bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi
from tvm.relax import op

from conv_traces import stored
from fuse_epilogue import plan, schedules
from fuse_epilogue.kernels.trainium import conv2d
from fuse_epilogue.neuron import emit
from fuse_epilogue.schedules.neuron import Conv2d
from kernel_runs import run
from neuron_rules import kernel_by
from row_operators import function

Shapes = list[tuple[int, ...]]


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: op.nn.conv2d(x, w, **options)


def block_of_resnet(x: Any, w: Any, bias: Any, shortcut: Any) -> Any:
    y = op.add(op.nn.conv2d(x, w, strides=2, padding=1), bias)
    return op.nn.relu(op.add(y, shortcut))


#: The operator and the shapes of its inputs.
CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "fused": (block_of_resnet, [(2, 16, 14, 14), (32, 16, 3, 3), (1, 32, 1, 1), (2, 32, 7, 7)]),
    "1 x 1": (conv(), [(1, 20, 9, 9), (7, 20, 1, 1)]),
    "several tiles of channels": (conv(padding=1), [(1, 200, 6, 6), (150, 200, 3, 3)]),
    "several blocks of rows": (conv(padding=1), [(1, 4, 40, 40), (6, 4, 3, 3)]),
    "dilated": (conv(padding=2, dilation=2), [(1, 3, 12, 12), (5, 3, 3, 3)]),
    "a large window": (conv(strides=2, padding=3), [(1, 3, 33, 33), (8, 3, 7, 7)]),
    "not square": (conv(strides=(1, 2), padding=(0, 1)), [(1, 5, 8, 10), (4, 5, 1, 3)]),
}


kernel_of = partial(kernel_by, Conv2d(), checked=("trn2", "trn3"))


def compare(func: Any) -> None:
    """Compare with the function compiled by TVM, on integers: all sums are exact."""
    kernel = kernel_of(func)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, size=s).astype(t) for s, t in kernel.inputs.values()]
    got = kernel(*arrays)
    np.testing.assert_array_equal(got, run(func, arrays, got.shape, str(got.dtype)))


@pytest.mark.parametrize("name", CASES)
def test_computes_the_convolution(name: str) -> None:
    compare(function(*CASES[name]))


@pytest.mark.parametrize("name", ["fused", "several blocks of rows"])
def test_images_that_are_too_large_come_by_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv2d, "_WHOLE_IMAGE", 0)
    compare(function(*CASES[name]))


def narrow(dtype: str, weights: str = "", sums: str = "float32") -> Any:
    """A convolution in te, in types of its own."""
    x = te.placeholder((1, 6, 8, 8), dtype, "x")
    w = te.placeholder((5, 6, 3, 3), weights or dtype, "w")
    c, i, j = te.reduce_axis((0, 6)), te.reduce_axis((0, 3)), te.reduce_axis((0, 3))

    def term(n: Any, o: Any, y: Any, z: Any) -> Any:
        a, b = x[n, c, y + i, z + j], w[o, c, i, j]
        return (a if dtype == sums else a.astype(sums)) * (b if b.dtype == sums else b.astype(sums))

    out = te.compute((1, 5, 6, 6), lambda *at: te.sum(term(*at), axis=[c, i, j]))
    return te.create_prim_func([x, w, out])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype: str) -> None:
    kernel = kernel_of(narrow(dtype))
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, size=s).astype(kind) for s, _ in kernel.inputs.values())
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float32), (3, 3), (2, 3))
    expected = np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.float32))
    np.testing.assert_array_equal(kernel(x, w), expected)


def test_zeros_around_images_are_the_functions() -> None:
    """A weight that is infinite spoils what it is multiplied with zeros for, as without fusing."""
    func = function(conv(padding=1), [(1, 2, 4, 4), (3, 2, 3, 3)])
    kernel = kernel_of(func)
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32)
    w[1, 0, 0, 0] = np.inf
    expected = run(func, [x, w], (1, 3, 4, 4))
    assert np.isnan(expected).any()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kernel(x, w), expected)


def of_other_layout() -> Any:
    return function(
        lambda x, w: op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"),
        [(1, 8, 8, 4), (3, 3, 4, 6)],
    )


def with_sums() -> Any:
    """A convolution whose sums are a result, beside what follows them."""
    x, w = te.placeholder((1, 2, 8, 8)), te.placeholder((3, 2, 3, 3))
    sums = topi.nn.conv2d(x, w, 1, 1, 1)
    return te.create_prim_func([x, w, sums, topi.nn.relu(sums)])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "NHWC": (of_other_layout, "not one 2-D convolution in layout NCHW"),
    "groups": (lambda: function(conv(groups=2), [(1, 4, 8, 8), (6, 2, 3, 3)]), "it has groups"),
    "a wide row": (lambda: function(conv(), [(1, 2, 3, 514), (2, 2, 1, 1)]), "has 514 columns"),
    "mixed types": (lambda: narrow("float32", "bfloat16"), "multiplies float32 with bfloat16"),
    "sums in 16 bits": (lambda: narrow("float16", sums="float16"), "summed in float32"),
    "weights that do not fit": (
        lambda: function(conv(), [(1, 2048, 4, 6), (256, 2048, 3, 5)]),
        "sbuf-capacity",
    ),
    "a row is added": (
        lambda: function(
            lambda x, w, r: op.add(op.nn.conv2d(x, w), r),
            [(1, 2, 8, 8), (3, 2, 1, 1), (1, 1, 1, 8)],
        ),
        "neither a value for a channel nor the result's shape",
    ),
    "two results": (with_sums, "it has several results"),
    "a product": (lambda: function(op.matmul, [(8, 8), (8, 8)]), "not one 2-D convolution"),
    "transposed after": (
        lambda: function(
            lambda x, w: op.permute_dims(op.nn.conv2d(x, w), [0, 2, 3, 1]),
            [(1, 2, 8, 8), (3, 2, 1, 1)],
        ),
        "does not compute one element from each",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, why = REFUSED[name]
    choice = Conv2d().choose(make(), "trn2")
    assert choice.schedule is None
    assert re.search(why, choice.why), choice.why


def test_on_trn1_weights_must_be_finite() -> None:
    func = function(*CASES["1 x 1"])
    assert "Conv2d(finite=True)" in Conv2d().choose(func, "trn1").why
    kernel_by(Conv2d(finite=True), func, "trn1")


def test_the_trace_replays() -> None:
    func = function(*CASES["fused"])
    sch = Conv2d().apply(func, "trn2")
    assert sch is not None
    again = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_apply_takes_the_plan() -> None:
    func = function(*CASES["1 x 1"])
    planned = emit(plan(func, "trn2").apply(func))
    assert emit(schedules.apply(func, "trn2")).source == planned.source


def test_the_tensor_engine_is_busy_most_of_the_time() -> None:
    predicted = kernel_of(function(conv(padding=1), [(1, 64, 56, 56), (64, 64, 3, 3)])).predict(
        "trn2"
    )
    assert predicted.latency_ms < 1.2 * predicted.busy_ms["tensor"]
