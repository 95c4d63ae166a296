"""Attention of lengths that are not known: one kernel in blocks, right for every length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import fuse_epilogue
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.tir.walk import parts_of
from fuse_epilogue.transform import ScheduleModule, schedules_of
from tiers import crossed

op = relax.op
HEADS, SIZE = 4, 16
#: Around the sizes of vectors and blocks.
LENGTHS = (1, 2, 7, 15, 16, 17, 63, 64, 65, 129, 200)


def model(sizes: Sequence[Any], causal: bool = False, groups: int = HEADS) -> tvm.IRModule:
    """Attention of some sizes, each a number or a name: batch, queries, keys.

    Heads are axes of rows, as after a linear layer, and are joined again after it.
    """
    names = {each: tirx.Var(each, "int64") for each in sizes if isinstance(each, str)}
    b, n, m = (names.get(each, each) for each in sizes)
    shapes = {"q": (b, n, HEADS * SIZE), "k": (b, m, groups * SIZE), "v": (b, m, groups * SIZE)}
    args = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    emit = builder.emit

    def heads(value: Any, length: Any, count: int) -> Any:
        split = emit(op.reshape(value, (b, length, count, SIZE)))
        return emit(op.permute_dims(split, [0, 2, 1, 3]))

    def repeated(value: Any) -> Any:
        shape = (b, groups, HEADS // groups, m, SIZE)
        wide = emit(op.broadcast_to(emit(op.expand_dims(value, 2)), shape))
        return emit(op.reshape(wide, (b, HEADS, m, SIZE)))

    with builder.function("main", args):
        with builder.dataflow():
            q = heads(args[0], n, HEADS)
            k, v = (heads(each, m, groups) for each in args[1:])
            if groups < HEADS:
                k, v = repeated(k), repeated(v)
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = emit(op.multiply(s, relax.const(0.25)))
            if causal:
                rows, columns = (emit(op.arange(0, each, 1, "int64")) for each in (n, m))
                rows = emit(op.expand_dims(rows, 1))
                shown = emit(op.less_equal(emit(op.expand_dims(columns, 0)), rows))
                s = emit(op.where(shown, s, relax.const(-np.inf, "float32")))
            o = emit(op.matmul(emit(op.nn.softmax(s, axis=-1)), v))
            o = emit(op.permute_dims(o, [0, 2, 1, 3]))
            out = builder.emit_output(op.reshape(o, (b, n, HEADS * SIZE)))
        builder.emit_func_output(out)
    return builder.get()


def after_a_layer(n: int) -> tvm.IRModule:
    """Attention of a batch by name, whose rows torch.export counts together in the layer before."""
    b = tirx.Var("b", "int64")
    x = relax.Var("x", relax.TensorType((b, n, HEADS * SIZE), "float32"))
    weights = [
        relax.Var(name, relax.TensorType((HEADS * SIZE, HEADS * SIZE), "float32")) for name in "qkv"
    ]
    builder = relax.BlockBuilder()
    emit = builder.emit

    def heads(weight: Any) -> Any:
        rows = emit(op.matmul(emit(op.reshape(x, (b * n, HEADS * SIZE))), weight))
        split = emit(op.reshape(rows, (b, n, HEADS, SIZE)))
        return emit(op.permute_dims(split, [0, 2, 1, 3]))

    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            q, k, v = map(heads, weights)
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = emit(op.nn.softmax(emit(op.multiply(s, relax.const(0.25))), axis=-1))
            out = builder.emit_output(op.reshape(emit(op.matmul(s, v)), (b * HEADS, n, SIZE)))
        builder.emit_func_output(out)
    return builder.get()


def drawn(b: int, n: int, m: int, groups: int = HEADS) -> list[np.ndarray]:
    rng = np.random.default_rng(n * m + b)
    shapes = [(b, n, HEADS * SIZE), *[(b, m, groups * SIZE)] * 2]
    return [(rng.standard_normal(shape) * 2).astype("float32") for shape in shapes]


def expected(arrays: Sequence[np.ndarray], causal: bool) -> np.ndarray:
    b, n, _ = arrays[0].shape
    q, k, v = (
        each.astype("float64").reshape(b, each.shape[1], -1, SIZE).transpose(0, 2, 1, 3)
        for each in arrays
    )
    k, v = (each.repeat(HEADS // each.shape[1], 1) for each in (k, v))
    s = q @ k.transpose(0, 1, 3, 2) * 0.25
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(b, n, HEADS * SIZE)


def test_a_batch_by_name_that_is_part_of_a_dimension() -> None:
    """Neither ``b * n`` nor ``b * heads`` says what b is: it is a parameter of the function."""
    made = fuse_epilogue.compile(after_a_layer(7), threads=1)
    assert [each.kind for each in made.report.functions].count("attention") == 1
    shape = (3, HEADS * SIZE, HEADS * SIZE)
    weights = np.random.default_rng(0).standard_normal(shape).astype("float32") / 8
    for b in (1, 3):
        x = drawn(b, 7, 7)[0]
        aim = expected([x @ each for each in weights], False).reshape(b, 7, HEADS, SIZE)
        aim = aim.transpose(0, 2, 1, 3).reshape(b * HEADS, 7, SIZE)
        np.testing.assert_allclose(made(x, *weights), aim, rtol=0, atol=1e-5 * np.abs(aim).max())


@cache
def compiled(sizes: tuple[Any, ...], causal: bool, groups: int, threads: int = 1) -> Any:
    made = fuse_epilogue.compile(model(sizes, causal, groups), threads=threads)
    kinds = [each.kind for each in made.report.functions]
    assert kinds == ["attention"], kinds
    return made


@pytest.mark.full
@crossed(length=LENGTHS, groups=(HEADS, 1), causal=(False, True))
def test_a_length_of_queries_and_keys(length: int, groups: int, causal: bool) -> None:
    made = compiled((1, "n", "n"), causal, groups)
    arrays = drawn(1, length, length, groups)
    np.testing.assert_allclose(made(*arrays), expected(arrays, causal), rtol=0, atol=5e-6)


@crossed(
    sizes=((1, 1, 1), (2, 5, 70), (3, 70, 5), (2, 130, 66)), causal=(False, True), threads=(1, 2)
)
@pytest.mark.usefixtures("free_threads")
def test_every_size_has_a_name(sizes: tuple[int, int, int], causal: bool, threads: int) -> None:
    made = compiled(("b", "n", "m"), causal, HEADS, threads)
    arrays = drawn(*sizes)
    np.testing.assert_allclose(made(*arrays), expected(arrays, causal), rtol=0, atol=5e-6)


@pytest.mark.parametrize("keys", LENGTHS)
def test_one_query_of_any_number_of_keys(keys: int) -> None:
    made = compiled((1, 1, "m"), False, HEADS)
    arrays = drawn(1, 1, keys)
    np.testing.assert_allclose(made(*arrays), expected(arrays, False), rtol=0, atol=5e-6)


@pytest.mark.parametrize("queries", [1, 3])
def test_without_a_key_the_sum_is_of_nothing(queries: int) -> None:
    made = compiled((1, queries, "m"), False, HEADS)
    # NumPy's strides of nothing are not those that TVM expects.
    arrays = [tvm.runtime.tensor(each) for each in drawn(1, queries, 0)]
    assert (made(*arrays).numpy() == 0).all()


def test_chosen_lengths_have_kernels_of_their_own() -> None:
    made = fuse_epilogue.compile(model((1, "n", "n"), True), threads=1, sizes={"n": (8, 70)})
    assert [each.kind for each in made.report.functions] == ["attention"] * 3
    for length in (8, 70, 71):
        arrays = drawn(1, length, length)
        np.testing.assert_allclose(made(*arrays), expected(arrays, True), rtol=0, atol=5e-6)


@pytest.mark.parametrize("sizes", [(1, "n", "n"), ("b", "n", "m")])
@pytest.mark.parametrize("groups", [HEADS, 2])
def test_memory_grows_with_the_length(sizes: tuple[Any, ...], groups: int) -> None:
    """No buffer has both a number of queries and one of keys, and none all heads of another."""
    done = scheduled(model(sizes, True, groups), ScheduleModule(host(1), threads=1))
    (schedule,) = schedules_of(done) or ()
    assert schedule.kind == "attention"
    (func,) = [each for each in done.functions.values() if isinstance(each, tirx.PrimFunc)]
    allocated = parts_of(func.body, tirx.AllocBuffer)
    assert allocated
    for each in allocated:
        names = [size for size in each.buffer.shape if not isinstance(size, tirx.IntImm)]
        assert len(names) < 2, each
