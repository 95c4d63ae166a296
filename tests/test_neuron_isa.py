"""Each instruction against numpy, with a twin that is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron.costs import TABLE
from fuse_epilogue.neuron.isa import COLLECTIVES, INSTRUCTIONS
from neuron_kernels import kernel

RNG = np.random.default_rng(11)
X = RNG.integers(-8, 9, (128, 64)).astype("float32")
V = RNG.integers(1, 5, (128, 1)).astype("float32")
SPEC = [((128, 64), "float32"), ((128, 1), "float32")]


def run(
    body: str,
    shape: tuple[int, ...] = (128, 64),
    dtype: str = "float32",
    machine: str = "trn2",
) -> Any:
    """`body` computes r of `shape` and the column c from the tiles t and v."""
    text = kernel(
        f"y = nl.ndarray({shape}, nl.{dtype}, buffer=nl.shared_hbm)\n"
        "z = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)\n"
        "t = nl.load(x)\nv = nl.load(column)\n"
        f"r = nl.ndarray({shape}, nl.{dtype}, buffer=nl.sbuf)\n"
        "c = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)\nnisa.memset(c, 5.0)\n"
        f"{body}\nnisa.dma_copy(y, r)\nnisa.dma_copy(z, c)\nreturn y, z\n",
        "x, column",
    )
    read = neuron.load(text)
    read.check(machine, *SPEC)
    assert read.predict(machine, *SPEC).latency_ms > 0
    return read(X, V)


def refused(body: str, shape: tuple[int, ...] = (128, 64), dtype: str = "float32") -> str:
    with pytest.raises((neuron.KernelError, neuron.CheckError)) as error:
        run(body, shape, dtype)
    return str(error.value)


def argmax8(rows: np.ndarray) -> np.ndarray:
    """The places of the eight largest; of equal ones the first is first."""
    return np.argsort(-rows, axis=1, kind="stable")[:, :8]


_PLACES = np.arange(64) + 1
RANGED = np.where((_PLACES >= V) & (_PLACES < V + 5), X, np.finfo("float32").min)
SILU = (X / (1 + np.exp(-X))).astype("float32")

#: Instructions with what r and c become (None: c stays), and a twin with the reason of its refusal.
CASES: list[tuple[str, Any, Any, str, str]] = [
    (
        "nisa.activation_reduce(r, nl.relu, t, nl.add, c, bias=v, scale=2.0)",
        np.maximum(2 * X + V, 0),
        np.maximum(2 * X + V, 0).sum(axis=1, keepdims=True),
        "nisa.activation_reduce(r, nl.relu, t, nl.add, c[0:64, :])",
        "reduce_res is a number or a tile of shape (128, 1)",
    ),
    (
        "nisa.activation(r, nl.copy, t, reduce_op=nl.add, "
        "reduce_cmd=nisa.reduce_cmd.reset_reduce)\n"
        "nisa.activation(r, nl.square, t, reduce_op=nl.add, reduce_res=c, "
        "reduce_cmd=nisa.reduce_cmd.reduce)",
        X * X,
        (X + X * X).sum(axis=1, keepdims=True),
        "nisa.activation(r, nl.square, t, reduce_res=c)",
        "reduce_op and reduce_res are given together",
    ),
    (
        "nisa.tensor_scalar_reduce(r, t, nl.subtract, v, nl.maximum, c, reverse0=True)",
        V - X,
        (V - X).max(axis=1, keepdims=True),
        "nisa.tensor_scalar_reduce(r, t, nl.subtract, t, nl.maximum, c)",
        "operand0 is a number or a tile of shape (128, 1)",
    ),
    (
        "nisa.tensor_scalar_cumulative(r, t, nl.multiply, nl.maximum, v, 0.5, "
        "nisa.reduce_cmd.load_reduce)",
        np.maximum.accumulate(np.maximum(X * V, 0.5), axis=1),
        None,
        "nisa.tensor_scalar_cumulative(r, t, nl.multiply, nl.add, v, 0.5)",
        "imm1 is where load_reduce starts",
    ),
    (
        "nisa.tensor_scalar_cumulative(r, t, nl.subtract, nl.subtract, 0.25)",
        "alternating",
        None,
        "nisa.tensor_scalar_cumulative(r, t, nl.add, nl.power, 0.25)",
        "op1 must be one of nl.add",
    ),
    (
        "nisa.reciprocal(r, v.broadcast_to((128, 64)))",
        np.repeat(1 / V, 64, axis=1),
        None,
        "nisa.reciprocal(r, t[:, 0:1])",
        "nothing is broadcast",
    ),
    (
        "nisa.tensor_tensor_scan(r, t, t, v, nl.multiply, nl.add)",
        "scan",
        None,
        "nisa.tensor_tensor_scan(r, t, t, t, nl.multiply, nl.add)",
        "initial is a number or a tile of shape (128, 1)",
    ),
    (
        "nisa.iota(r, pattern=[[64, 2], [1, 32]], offset=3, channel_multiplier=10)",
        3 + 10 * np.arange(128)[:, None] + np.array([[64 * (i // 32) + i % 32 for i in range(64)]]),
        None,
        "nisa.iota(r, pattern=[[1, 63]], offset=0)",
        "pattern counts 63 elements, dst has 64",
    ),
    (
        "nisa.affine_select(r, pattern=[[-1, 64]], channel_multiplier=1, on_true_tile=t, "
        "on_false_value=-9.0, cmp_op=nl.greater_equal)",
        np.where(np.arange(128)[:, None] >= np.arange(64), X, np.float32(-9)),
        None,
        "nisa.affine_select(r, pattern=[-1, 64], channel_multiplier=1, on_true_tile=t, "
        "on_false_value=-9.0)",
        "pattern is pairs of a step and a count",
    ),
    (
        "p = nl.ndarray((128, 64), nl.uint8)\nnisa.tensor_scalar(p, t, nl.greater, 0.0)\n"
        "nisa.select_reduce(r, p, t, v, reduce_res=c, reduce_cmd=nisa.reduce_cmd.reset_reduce)",
        np.where(X > 0, X, V),
        np.where(X > 0, X, V).max(axis=1, keepdims=True),
        "nisa.select_reduce(r, t, t, 0.0)",
        "predicate is float32: an integer of 8 or 16 bits",
    ),
    (
        "u = nl.add(v, 5.0)\n"
        "nisa.range_select(r, t, nl.greater_equal, nl.less, v, u, reduce_res=c, range_start=1, "
        "on_false_value=-3.4028235e38)",
        RANGED,
        RANGED.max(axis=1, keepdims=True),
        "nisa.range_select(r, t, nl.greater_equal, nl.less, t, v)",
        "bound0 is a number or a tile of shape (128, 1)",
    ),
    (
        "p = nl.ndarray((128, 64), nl.uint8, buffer=nl.sbuf)\n"
        "nisa.tensor_scalar(p, t, nl.greater, 0.0)\n"
        "nisa.memset(r, 7.0)\nnisa.tensor_copy_predicated(r, t, p)",
        np.where(X > 0, X, np.float32(7)),
        None,
        "nisa.memset(r, 7.0)\nnisa.tensor_copy_predicated(r, t, t)",
        "predicate is float32, not uint8",
    ),
    (
        "nisa.nc_stream_shuffle(r, t, shuffle_mask=[3] * 16 + list(range(16)))",
        X.reshape(4, 32, 64)[:, [3] * 16 + list(range(16))].reshape(128, 64),
        None,
        "nisa.nc_stream_shuffle(r, t, shuffle_mask=[0] * 31)",
        "shuffle_mask has 32 items",
    ),
    (
        "nisa.dma_compute(r, (t, t, t), nl.add, scales=(1.0, 2.0, 3.0))",
        6 * X,
        None,
        "nisa.dma_compute(r, (t, v), nl.add)",
        "srcs[1] has shape (128, 1)",
    ),
    (
        "nisa.tensor_copy(r, t)\nfor k in range(2):\n    nisa.tensor_scalar(r, r, nl.add, 1.0)",
        X + 2,
        None,
        "nisa.tensor_copy(r, t, engine=nisa.tensor_engine)",
        "runs on the vector or scalar or gpsimd engine",
    ),
    (
        "nisa.activation(r, nl.silu, t)",
        SILU,
        None,
        "nisa.activation(r, nl.maximum, t)",
        "op must be one of nl.copy",
    ),
]


@pytest.mark.parametrize(
    ("body", "result", "column", "twin", "reason"), CASES, ids=[it[0].split("(")[0] for it in CASES]
)
def test_instruction(body: str, result: Any, column: Any, twin: str, reason: str) -> None:
    if isinstance(result, str):
        scans = result == "scan"
        result, last = np.empty_like(X), V[:, 0] if scans else 0 * V[:, 0]
        for at in range(64):
            with np.errstate(over="ignore", invalid="ignore"):
                last = X[:, at] * last + X[:, at] if scans else X[:, at] - np.float32(0.25) - last
            result[:, at] = last
    y, z = run(body)
    np.testing.assert_allclose(y, result, rtol=1e-6)
    np.testing.assert_array_equal(z, np.full((128, 1), 5.0) if column is None else column)
    assert reason in refused(twin)


def test_exponentials_of_the_vector_engine() -> None:
    body = "nisa.exponential(r, t, v, c, nisa.reduce_cmd.{}{})"
    total = np.exp(X - V).sum(axis=1, keepdims=True)
    for command, start in (("reset_reduce", 0), ("load_reduce, v", V), ("load_reduce", 0)):
        y, z = run(body.format(command, ""), machine="trn3")
        np.testing.assert_array_equal(y, np.exp(X - V))
        np.testing.assert_allclose(z, total + start, rtol=1e-6)
    begun = "nisa.exponential(r, t, v, reduce_cmd=nisa.reduce_cmd.reset_reduce)\n"
    _, z = run(begun + body.format("reduce", ""), machine="trn3")
    np.testing.assert_allclose(z, 2 * total, rtol=1e-6)
    assert "reduce_cmd other than idle" in refused(body.format("idle", ""))
    assert "reduce_init is where load_reduce starts" in refused(body.format("reset_reduce", ", v"))
    assert "exponential is there from trn3 on" in refused(body.format("reset_reduce", ""))


def test_reductions_continue_what_the_registers_of_their_engine_hold() -> None:
    reduce = "nisa.tensor_scalar_reduce(r, t, nl.multiply, 2.0, nl.add, {})"
    body = "{}\n" + reduce.format("c, reduce_cmd=nisa.reduce_cmd.reduce, reduce_res_negate=True")
    total = 2 * X.sum(axis=1, keepdims=True)
    _, z = run(body.format(reduce.format("None")))
    np.testing.assert_array_equal(z, -2 * total)
    loaded = "reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=v"
    _, z = run(body.format(reduce.format(f"c, {loaded}")))
    np.testing.assert_array_equal(z, -2 * total - V)
    nothing = "what the registers of the vector engine hold, but no earlier reduce_cmd.reset_reduce"
    # An activation has registers of its own, and a selection that does not reduce spoils these.
    other = "nisa.activation_reduce(r, nl.copy, t, nl.add, c)"
    idle = "p = nl.ones((128, 64), nl.uint8)\nnisa.select_reduce(r, p, t, 0.0)"
    for first in ("", other, reduce.format("None") + "\n" + idle):
        assert nothing in refused(body.format(first))
    running = "nisa.tensor_scalar_cumulative(r, {}, nl.add, nl.add, 0.0{})"
    again = running.format("t", ", reduce_cmd=nisa.reduce_cmd.reduce")
    y, _ = run(running.format("t", "") + "\n" + again)
    np.testing.assert_array_equal(y, X.sum(1, keepdims=True) + np.cumsum(X, axis=1))


def test_two_operations_before_a_function() -> None:
    body = "nisa.activate2(r, nl.relu, t, 2.0, v, nl.multiply, nl.{}, reverse1=True)"
    y, _ = run(body.format("subtract"), machine="trn3")
    np.testing.assert_array_equal(y, np.maximum(V - 2 * X, 0))
    assert "nl.multiply and nl.maximum are not a pair" in refused(body.format("maximum"))
    assert "activate2 is there from trn3 on" in refused(body.format("add"))


def test_bounds_of_segments() -> None:
    body = (
        "s = nl.ndarray((1, 64), nl.int32)\nnisa.memset(s, 0)\nnisa.memset(s[:, 3:10], 1)\n"
        "nisa.memset(s[:, 10:64], 2)\nnisa.sequence_bounds(r, {})"
    )
    y, _ = run(body.format("s"), (1, 2, 64), "int32")
    expected = [64] * 3 + [3] * 7 + [10] * 54, [-1] * 3 + [10] * 7 + [64] * 54
    np.testing.assert_array_equal(y[0], expected)
    assert "segment_ids has shape (128, 64)" in refused(body.format("t"), (1, 2, 64), "int32")


def test_angles_beyond_pi_are_for_the_function_of_the_language() -> None:
    y, _ = run("nisa.tensor_copy(r, nl.sin(t))")
    np.testing.assert_allclose(y, np.sin(X), atol=2e-6)
    assert "angles from -pi to pi" in refused("nisa.activation(r, nl.sin, t)")


def test_functions_of_tiles_that_are_no_operations() -> None:
    y, _ = run("nisa.tensor_copy(r, nl.negative(nl.mish(t)))")
    np.testing.assert_allclose(y, -X * np.tanh(np.logaddexp(X, 0)), rtol=1e-6)
    assert "nl.negative(...) takes a tile" in refused("nl.negative(3.0)")


def test_transposition_by_transfers() -> None:
    y, _ = run("nisa.dma_transpose(r, t[:, 0:64])", (64, 128))
    np.testing.assert_array_equal(y, X.T)
    y, _ = run(
        "u = t.reshape((128, 2, 32))\nnisa.dma_transpose(r, u, axes=(2, 1, 0))", (32, 2, 128)
    )
    np.testing.assert_array_equal(y, X.reshape(128, 2, 32).transpose(2, 1, 0))
    assert "src transposed (64, 128)" in refused("nisa.dma_transpose(r, t)")
    assert "axes (0, 0)" in refused("nisa.dma_transpose(r, t, axes=(0, 0))")
    assert "another type" in refused("nisa.dma_transpose(r, t)", (64, 128), "bfloat16")


def test_statistics_and_their_union() -> None:
    body = (
        "s = nl.ndarray((128, 12), nl.float32, buffer=nl.sbuf)\n"
        "nisa.bn_stats(s[:, 0:6], t[:, 0:33])\nnisa.bn_stats(s[:, 6:12], t[:, 33:64])\n"
    )
    y, _ = run(body + "nisa.bn_aggr(r, s)", (128, 2))
    np.testing.assert_allclose(y[:, 0], X.mean(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y[:, 1], X.var(axis=1), rtol=1e-5)
    y, _ = run("nisa.bn_stats(r, t[:, 0:3])", (128, 6))
    even = X[:, 0:3:2]
    np.testing.assert_array_equal(y[:, 0], 2)
    np.testing.assert_array_equal(y[:, 1], even.mean(axis=1))
    np.testing.assert_array_equal(y[:, 2], even.var(axis=1) * 2)
    np.testing.assert_array_equal(y[:, 3:], np.stack([np.ones(128), X[:, 1], np.zeros(128)], 1))
    assert "statistics (128, 6)" in refused("nisa.bn_stats(r, t)")
    assert "in threes" in refused("nisa.bn_aggr(r, t)", (128, 2))


def test_reduction_over_partitions() -> None:
    y, _ = run("nisa.tensor_partition_reduce(r, nl.add, t)", (1, 64))
    np.testing.assert_array_equal(y, X.sum(axis=0, keepdims=True))
    assert "the reduction (1, (64,))" in refused("nisa.tensor_partition_reduce(r, nl.add, t)")


def test_choices_of_integers_are_not_rounded() -> None:
    big = 2**24 + 1
    make = (
        "i = nl.ndarray((128, 64), nl.int32, buffer=nl.sbuf)\n"
        f"nisa.iota(i, pattern=[[2, 64]], offset={big}, channel_multiplier=0)\n"
        "p = nl.ndarray((128, 64), nl.uint8, buffer=nl.sbuf)\n"
        "nisa.tensor_scalar(p, t, nl.greater, 0.0)\n"
    )
    places = np.broadcast_to(big + 2 * np.arange(64), X.shape)
    body = make + f"nisa.memset(r, {big + 4})\nnisa.tensor_copy_predicated(r, i, p)"
    y, _ = run(body, dtype="int32")
    np.testing.assert_array_equal(y, np.where(X > 0, places, big + 4))
    body = make + f"nisa.tensor_copy(r, i)\nnisa.tensor_copy_predicated(r, {big}, p)"
    y, _ = run(body, dtype="int32")
    np.testing.assert_array_equal(y, np.where(X > 0, big, places))
    assert "0.5 is not a value of int32" in refused(
        body.replace(f"(r, {big}, p)", "(r, 0.5, p)"), dtype="int32"
    )
    select = (
        "nisa.affine_select(r, pattern=[[-1, 64]], channel_multiplier=1, on_true_tile={}, "
        "on_false_value=-9.0, cmp_op=nl.greater_equal)"
    )
    y, _ = run(make + select.format("t"), dtype="int16")
    np.testing.assert_array_equal(y, np.where(np.arange(128)[:, None] >= np.arange(64), X, -9))
    reason = "on_true_tile is int32: affine_select takes floats, and integers of 8 or 16 bits"
    assert reason in refused(make + select.format("i"), dtype="int32")


def test_the_eight_largest() -> None:
    y, _ = run("nisa.max8(r, t)", (128, 8))
    np.testing.assert_array_equal(y, np.sort(X, axis=1)[:, :-9:-1])
    assert "eight elements" in refused("nisa.max8(r, t)")
    find = "m = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)\nnisa.max8(m, t)\n"
    y, _ = run(find + "nisa.nc_find_index8(r, t, m)", (128, 8), "uint32")
    np.testing.assert_array_equal(y, argmax8(X))
    assert "vals has eight" in refused(find + "nisa.nc_find_index8(r, t, t)", (128, 8), "uint32")
    index = "i = nl.ndarray((128, 8), nl.uint32, buffer=nl.sbuf)\n"
    y, _ = run(find + index + "nisa.nc_match_replace8(r, t, m, imm=-9.0, dst_idx=i)")
    expected = X.copy()
    np.put_along_axis(expected, argmax8(X), -9, axis=1)
    np.testing.assert_array_equal(y, expected)
    y, _ = run(find + index + "u = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)\n"
               "nisa.nc_match_replace8(u, t, m, imm=-9.0, dst_idx=i)\n"
               "nisa.nc_n_gather(r, t, i)", (128, 8))  # fmt: skip
    np.testing.assert_array_equal(y, np.take_along_axis(X, argmax8(X), axis=1))
    assert "which was not written" in refused(find + index + "nisa.nc_n_gather(r, t, i)", (128, 8))


@pytest.mark.parametrize(("dtype", "nowhere"), [("uint32", 2**32 - 1), ("int32", -1)])
def test_the_place_of_a_value_that_is_nowhere(dtype: str, nowhere: int) -> None:
    for instruction in (
        "nisa.nc_find_index8(r, t, m)",
        "u = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)\n"
        "nisa.nc_match_replace8(u, t, m, imm=0.0, dst_idx=r)",
    ):
        values = "m = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)\nnisa.memset(m, 1e9)\n"
        y, _ = run(values + instruction, (128, 8), dtype)
        np.testing.assert_array_equal(y, nowhere)


def test_places_that_are_not_zero() -> None:
    y, _ = run(
        "nisa.memset(r, 77)\nnisa.nonzero_with_count(r, t, index_offset=10)", (128, 65), "int32"
    )
    for row in range(128):
        places = np.flatnonzero(X[row])
        expected = np.full(65, 77 if row % 16 else -1)
        if row % 16 == 0:
            expected[: places.size], expected[-1] = places + 10, places.size
        np.testing.assert_array_equal(y[row], expected)
    assert "and a count" in refused("nisa.nonzero_with_count(r, t)", dtype="int32")


def test_pieces_by_shared_indices() -> None:
    make = (
        "i = nl.ndarray((128, 2), nl.uint16, buffer=nl.sbuf)\n"
        "nisa.iota(i, pattern=[[16, 2]], offset=0, channel_multiplier=0)\n"
    )
    y, _ = run(make + "nisa.local_gather(r, t, i, num_valid_indices=20)", (128, 20))
    places = np.array([16 * (at // 16) for at in range(20)])
    np.testing.assert_array_equal(y, X[:, places])
    y, _ = run(make + "nisa.local_gather(r, t, i, num_elem_per_idx=2)", (128, 64))
    places = np.array([2 * 16 * (at // 16) + k for at in range(32) for k in range(2)])
    np.testing.assert_array_equal(y, X[:, places])
    assert "index is uint16" in refused("nisa.local_gather(r, t, t)", (128, 1024))


def test_transposition_by_the_vector_engine() -> None:
    body = "nisa.nc_transpose(r, t[0:32, 0:32], engine=nisa.vector_engine)"
    np.testing.assert_array_equal(run(body, (32, 32))[0], X[:32, :32].T)
    assert "at most 32 by 32" in refused(body.replace("0:32", "0:64"), (64, 64))


def test_free_dimensions_are_taken_as_one() -> None:
    body = (
        "p = nl.ndarray((64, 2, 64), nl.float32, buffer=nl.psum)\n"
        "nisa.nc_transpose(p, t.reshape((128, 2, 32)))\nnisa.tensor_copy(r, p)"
    )
    np.testing.assert_array_equal(run(body, (64, 128))[0], X.T)
    assert "data (128, 2, 32)" in refused(body.replace("(64, 2, 64)", "(64, 64)"), (64, 128))
    body = (
        "p = nl.ndarray((64, 4, 16), nl.float32, buffer=nl.psum)\n"
        "nisa.nc_matmul(p, t.reshape((128, 2, 32)), t.reshape((128, 8, 8)))\nnisa.tensor_copy(r, p)"
    )
    np.testing.assert_array_equal(run(body, (64, 64))[0], X.T @ X)
    assert "stationary.T @ moving (64, 64)" in refused(body.replace("4, 16", "4, 8"), (64, 32))
    body = "nisa.tensor_reduce(r[:, 3], nl.add, t, axis=1, keepdims=True)\n"
    fill = "nisa.memset(r, 0.0)\n"
    np.testing.assert_array_equal(run(fill + body, (128, 4))[0][:, 3], X.sum(axis=1))
    assert "the reduction (128, 1)" in refused(fill + body.replace("r[:, 3]", "r"), (128, 4))


def test_products_over_pairs_of_rows() -> None:
    body = (
        "h = nl.ndarray((128, 64), nl.float8_e4m3, buffer=nl.sbuf)\nnisa.tensor_copy(h, t)\n"
        "p = nl.ndarray((32, 32), nl.float32, buffer=nl.psum)\n"
        "pairs = h.reshape((128, 2, 32))\n"
        "nisa.nc_matmul(p, pairs, pairs, perf_mode=nisa.matmul_perf_mode.double_row)\n"
        "nisa.tensor_copy(r, p)"
    )
    pairs = X.reshape(256, 32)
    np.testing.assert_array_equal(run(body, (32, 32))[0], pairs.T @ pairs)
    assert "the first free dimension is 2" in refused(body.replace("(128, 2, 32)", "(128, 32, 2)"))


# ---- The table -----------------------------------------------------------------------------------


def test_each_row_is_complete() -> None:
    transfers = {"dma_copy", "dma_transpose", "dma_compute", "sendrecv"}
    in_costs = {op for row in TABLE for op in row.ops}
    for name, it in {**INSTRUCTIONS, **COLLECTIVES}.items():
        names = [parameter.name for parameter in it.parameters]
        assert name == it.name and len(set(names)) == len(names) and it.engines
        assert not set(names) & set(it.ignored)
        if name not in transfers | set(COLLECTIVES):
            assert (it.cost is not None) != (name in in_costs), name
        if it.cost is not None:
            assert it.cost.source and it.cost.machines
