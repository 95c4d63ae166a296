"""The rule for products of matrices on Trainium: kernels that check and compute what numpy says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import Trace
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from conv_traces import stored
from depthwise import Options, covering
from fuse_epilogue.kernels.trainium.product import Matmul, Tiling, scheduled, tilings
from fuse_epilogue.kernels.trainium.read_product import find_product
from fuse_epilogue.neuron import CheckError, Kernel, emit
from fuse_epilogue.neuron.machine import TRN1
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from fuse_epilogue.workloads.relaxed import _only_function
from neuron_rules import kernel_by
from oracles import Arrays
from test_workloads_matmul import name_of, possible, product
from tiers import crossed, tiered
from workload_runs import assert_right, drawn

# With sanitizers this would take long, and hardly any of it is the library's own code.
pytestmark = pytest.mark.slow

MACHINES = ("trn1", "trn2")
CHOICES = {
    "m": [1, 7, 128, 129, 300],
    "n": [1, 5, 512, 513, 1100],
    "k": [1, 3, 128, 130, 700],
    "dtype": ["float32", "float16", "bfloat16"],
    "bias": [True, False],
    "activation": [None, "relu", "silu"],
    "bias_axis": ["n", "m"],
    "transpose_a": [False, True],
    "transpose_b": [False, True],
}
CASES = covering(CHOICES, possible)


def kernel_of(func: PrimFunc, machine: str = "trn1") -> Kernel:
    return kernel_by(Matmul(), func, machine)


def judge(kernel: Kernel, options: Options, arrays: Arrays, kind: str) -> None:
    """Run a kernel and compare with numpy."""
    total, magnitude = product(options, arrays)
    depth = arrays["a"].shape[0 if options.get("transpose_a") else 1]
    y = kernel(*[array for name, array in arrays.items() if name != "y"])
    activation = options.get("activation")
    assert_right(y, total, magnitude, depth + 1, activation, kind, name_of(options))


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_computes_the_product(index: int) -> None:
    """On exact data bit for bit; on normal data, within what any order of the additions gives."""
    options = CASES[index]
    func = matmul(**options)
    kernel = kernel_of(func, MACHINES[index % 2])
    for kind in ("exact", "normal"):
        judge(kernel, options, drawn(func, kind, {}, name_of(options)), kind)


TILINGS = [
    Tiling(tiles, width, chunk, left, right)
    for tiles, width in ((1, 1), (1, 4), (2, 2), (4, 1))
    for chunk in (1, 3)
    for left, right in ((True, True), (True, False), (False, False))
]
SHAPES = [(513, 1100, 650), (256, 1024, 512), (130, 40, 257), (200, 513, 640)]


@crossed(shape=SHAPES, tiling=TILINGS)
def test_every_tiling_computes_the_same(shape: tuple[int, int, int], tiling: Tiling) -> None:
    """What the model does not choose for small matrices is right as well."""
    turned = tiling.chunk == 3
    options = {**dict(zip("mnk", shape, strict=True)), "transpose_b": turned, "activation": "relu"}
    func = matmul(**options)
    found = find_product(func)
    assert found is not None
    kernel = emit(scheduled(found, tiling))
    for machine in MACHINES:
        kernel.check(machine)
    judge(kernel, options, drawn(func, "exact", {}, name_of(options)), "exact")


@crossed(
    shape=SHAPES[2:],
    tiling=[replace(each, by_dma=True) for each in TILINGS[::5]],
    both=[False, True],
)
def test_transfers_transpose_matrices(
    shape: tuple[int, int, int], tiling: Tiling, both: bool
) -> None:
    """One matrix or both, as they are loaded: the tensor engine only multiplies."""
    options = {**dict(zip("mnk", shape, strict=True)), "dtype": "bfloat16", "transpose_b": both}
    func = matmul(**options)
    found = find_product(func)
    assert found is not None
    sch = scheduled(found, tiling)
    kernel = emit(sch)
    for machine in ("trn2", "trn3"):
        kernel.check(machine)
    with pytest.raises(CheckError, match="dma_transpose is there from trn2 on"):
        kernel.check("trn1")
    counts = Counter(step.op for step in kernel.trace().steps)
    assert counts["dma_transpose"] > 0 and counts["nc_transpose"] == 0
    judge(kernel, options, drawn(func, "exact", {}, name_of(options)), "exact")
    again = Schedule(func)
    Trace.apply_json_to_schedule(stored(sch), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


@pytest.mark.parametrize(("k", "transfers"), [(1024, 2), (640, 5)])
def test_one_transfer_transposes_a_chunk(k: int, transfers: int) -> None:
    """Where chunks are full; elsewhere, one tile after the other."""
    options = {"m": 128, "n": 40, "k": k, "dtype": "bfloat16"}
    func = matmul(**options)
    found = find_product(func)
    assert found is not None
    kernel = emit(scheduled(found, Tiling(1, 1, 4, False, False, by_dma=True)))
    counts = Counter(step.op for step in kernel.trace().steps)
    assert counts["dma_transpose"] == transfers
    judge(kernel, options, drawn(func, "exact", {}, f"chunks of {k}"), "exact")


@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"transpose_a": True}], ids=str)
def test_transfers_transpose_16_bits_only_where_it_must_be(options: Options) -> None:
    found = find_product(matmul(8, 8, 8, **{"dtype": "bfloat16", **options}))
    assert found is not None
    with pytest.raises(ScheduleError, match="transfers transpose only matrices of 16 bits"):
        scheduled(found, Tiling(1, 1, 1, True, False, by_dma=True))


def test_large_matrices_do_not_stay() -> None:
    """What stays has to fit into SBUF."""
    found = find_product(matmul(4096, 4096, 16384))
    assert found is not None
    assert not any(t.right_stays for t in tilings(found, TRN1))
    assert [t.left_stays for t in tilings(found, TRN1)] == [False, False]


@pytest.mark.parametrize("machine", MACHINES)
def test_long_sums(machine: str) -> None:
    options = {"m": 200, "n": 100, "k": 20000, "dtype": "bfloat16", "transpose_a": True}
    func = matmul(**options)
    kernel = kernel_of(func, machine)
    judge(kernel, options, drawn(func, "exact", {}, "long"), "exact")


# Predicted milliseconds of 1024 x 1024 x 1024 with bias and ReLU, and at least what the tensor
# engine takes for the products alone: 128 of them, of 512 columns, four passes in float32.
LIMITS = {
    ("float32", "trn1"): (0.0936, 0.118),
    ("float32", "trn2"): (0.1092, 0.137),
    ("bfloat16", "trn1"): (0.0234, 0.048),
    ("bfloat16", "trn2"): (0.0273, 0.050),
}


@pytest.mark.parametrize(("dtype", "machine"), LIMITS, ids=str)
def test_predicted_time(dtype: str, machine: str) -> None:
    func = matmul(1024, 1024, 1024, dtype=dtype, activation="relu")
    sch = Matmul().apply(func, machine)
    least, most = LIMITS[dtype, machine]
    assert least < emit(sch).predict(machine).latency_ms < most


# ---- The same, written otherwise -----------------------------------------------------------------


def relaxed(activation: str | None, dtype: str = "float32", out: str = "float32") -> PrimFunc:
    """A linear layer as Relax legalizes and fuses it: y = activation(x @ w + b)."""
    x, w, b = (
        relax.Var(name, R.Tensor(shape, kind))
        for name, shape, kind in (
            ("x", (130, 200), dtype),
            ("w", (200, 300), dtype),
            ("b", (300,), out),
        )
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, w, out_dtype=out))
            y = builder.emit(relax.op.add(y, b))
            if activation is not None:
                y = builder.emit(getattr(relax.op.nn, activation)(y))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return _only_function(builder.get())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_a_layer_of_relax(activation: str | None, dtype: str) -> None:
    options = {"m": 130, "n": 300, "k": 200, "activation": activation}
    arrays = drawn(matmul(**options), "exact", {}, "relax")
    given = {"x": "a", "w": "b", "b": "bias"}
    typed = {"a": dtype, "b": dtype, "bias": "float32", "y": "float32"}
    types = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
    arrays = {name: array.astype(types[typed[name]]) for name, array in arrays.items()}
    kernel = kernel_of(relaxed(activation, dtype))
    total, magnitude = product(options, arrays)
    y = kernel(*[arrays[given[name]] for name in kernel.parameters])
    assert_right(y, total, magnitude, 201, activation, "exact", "relax")


@T.prim_func(s_tir=True)
def by_hand(
    w: T.Buffer((5, 70)), x: T.Buffer((1, 70, 40)), b: T.Buffer((5,)), y: T.Buffer((5, 40))
):
    """The operands the other way round, the sum over the outermost loop, dimensions of size 1."""
    s = T.sblock_alloc_buffer((5, 40))
    for k, j, i in T.grid(70, 40, 5):
        with T.sblock("work"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = x[0, vk, vj] * w[vi, vk] + s[vi, vj]
    for j, i in T.grid(40, 5):
        with T.sblock("rest"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.max(T.float32(0), b[vi] + s[vi, vj])


@T.prim_func(s_tir=True)
def residual(
    a: T.Buffer((130, 70)), b: T.Buffer((70, 40)), r: T.Buffer((130, 40)), y: T.Buffer((40, 130))
):
    """A second matrix is added, and the result is stored the other way round."""
    s = T.sblock_alloc_buffer((130, 40))
    for i, j, k in T.grid(130, 40, 70):
        with T.sblock("work"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(130, 40):
        with T.sblock("rest"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vj, vi] = T.max(s[vi, vj] + r[vi, vj], T.float32(0))


def test_written_by_hand() -> None:
    rng = np.random.default_rng(1)
    w, x, b = (
        rng.integers(-4, 5, shape).astype("float32") for shape in ((5, 70), (1, 70, 40), (5,))
    )
    expected = np.maximum(w @ x[0] + b[:, None], 0)
    np.testing.assert_array_equal(kernel_of(by_hand)(w, x, b), expected)


def test_with_a_residual() -> None:
    rng = np.random.default_rng(2)
    a, b, r = (
        rng.integers(-4, 5, shape).astype("float32") for shape in ((130, 70), (70, 40), (130, 40))
    )
    np.testing.assert_array_equal(kernel_of(residual)(a, b, r), np.maximum(a @ b + r, 0).T)


# ---- What is left alone --------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def strided(a: T.Buffer((5, 14)), b: T.Buffer((7, 4)), y: T.Buffer((5, 4))):
    for i, j, k in T.grid(5, 4, 7):
        with T.sblock("work"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + a[vi, vk * 2] * b[vk, vj]


@T.prim_func(s_tir=True)
def differences(a: T.Buffer((5, 7)), b: T.Buffer((7, 4)), y: T.Buffer((5, 4))):
    for i, j, k in T.grid(5, 4, 7):
        with T.sblock("work"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + (a[vi, vk] - b[vk, vj])


@T.prim_func(s_tir=True)
def twice_k(a: T.Buffer((7, 7)), b: T.Buffer((7, 4)), y: T.Buffer((4,))):
    for j, k in T.grid(4, 7):
        with T.sblock("work"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                y[vj] = T.float32(0)
            y[vj] = y[vj] + a[vk, vk] * b[vk, vj]


@T.prim_func(s_tir=True)
def not_summed(a: T.Buffer((5, 7)), b: T.Buffer((4,)), y: T.Buffer((5, 4))):
    for i, j, k in T.grid(5, 4, 7):
        with T.sblock("work"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + a[vi, vk] * b[vj]


LEFT_ALONE: dict[str, Any] = {
    "a step of 2": strided,
    "no product": differences,
    "a diagonal": twice_k,
    "k in one operand": not_summed,
    "int8": matmul(8, 8, 8, dtype="int8"),
    "a symbolic size": matmul("m", 8, 8),
    "sums in 16 bits": relaxed(None, "bfloat16", "bfloat16"),
    "a convolution": depthwise_conv1d(2, 8, 16, 3),
    "a sum": row_reduce(8, 8),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_is_left_alone(name: str) -> None:
    func = LEFT_ALONE[name]
    assert Matmul().apply(func, "trn1") is None
    assert Matmul().choose(func, "trn1").why
