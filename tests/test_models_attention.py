"""Each attention of a model becomes one function, whatever its mask and its heads are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import fuse_epilogue
from fuse_epilogue.models.graph.attention_groups import GroupAttention
from fuse_epilogue.models.graph.cleanup import FoldNoOps
from fuse_epilogue.models.graph.constant_masks import ALL_TRUE, mask_element
from fuse_epilogue.models.graph.unflattened import UnflattenProducts
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule, schedules_of
from tiers import one_in

op = relax.op
HEADS, ROWS, KEYS, SIZE = 4, 9, 70, 8
TRIANGLE = np.tri(ROWS, KEYS, 3, dtype=bool)[None, None]
HOLES = TRIANGLE & (np.arange(KEYS) % 3 != 1)


def chain(change: str = "", dtype: str = "float32", queries: int = ROWS) -> Any:
    """Attention in operators of Relax, as frontends write it; `change` says what is special."""
    heads = 2 if change == "groups" else HEADS
    size = 3 if change == "three columns" else SIZE
    of_keys = (1, heads, KEYS, size)
    shapes = {"q": (1, HEADS, queries, size), "k": of_keys, "v": of_keys}
    args = [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in shapes.items()]
    if change == "bias":
        args.append(relax.Var("bias", relax.TensorType((1, 1, ROWS, KEYS), dtype)))
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", args):
        with builder.dataflow():
            q, k, v = args[:3]
            if change == "widened":
                q, k, v = (emit(op.astype(each, "float32")) for each in (q, k, v))
            if change == "groups":
                k, v = (_repeated(emit, each) for each in (k, v))
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = emit(op.multiply(s, relax.const(0.25, str(s.ty.dtype))))
            p = _weights(emit, s, args, change)
            o = emit(op.matmul(p, v))
            if change == "widened":
                o = emit(op.astype(o, dtype))
            if change == "transposed result":
                o = emit(op.permute_dims(o, [0, 2, 1, 3]))
                o = emit(op.reshape(o, (ROWS, HEADS * size)))
            outputs = [builder.emit_output(o)]
            if change == "scores are a result":
                outputs.append(builder.emit_output(emit(op.abs(s))))
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def _weights(emit: Any, s: Any, args: list[Any], change: str) -> Any:
    """The softmax of the scores, and what is special about it."""
    dtype = str(s.ty.dtype)
    if change == "soft-cap":
        s = emit(op.tanh(emit(op.divide(s, relax.const(2.0, dtype)))))
        s = emit(op.multiply(s, relax.const(2.0, dtype)))
    if change == "bias":
        s = emit(op.add(s, args[3]))
    masks = {"causal": TRIANGLE, "holes": HOLES, "nothing hidden": np.ones_like(TRIANGLE)}
    if change in masks:
        s = emit(op.where(relax.const(masks[change]), s, relax.const(-np.inf, dtype)))
    p = emit(op.nn.softmax(s, axis=2 if change == "over rows" else -1))
    if change == "powers":
        p = emit(op.power(p, relax.const(2.0, dtype)))
    return p


def _repeated(emit: Any, value: Any) -> Any:
    wide = emit(op.broadcast_to(emit(op.expand_dims(value, 2)), (1, 2, 2, KEYS, SIZE)))
    return emit(op.reshape(wide, (1, HEADS, KEYS, SIZE)))


def kinds(mod: Any) -> list[str]:
    done = scheduled(mod, ScheduleModule(host(1), threads=1))
    found = schedules_of(done)
    assert found is not None
    return [each.kind for each in found]


def drawn(mod: Any, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(size) for size in param.ty.shape) for param in mod["main"].params]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def by_tvm(mod: Any, arrays: list[np.ndarray]) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    return np.asarray(machine["main"](*map(tvm.runtime.tensor, arrays)).numpy())


ONE = ("", "groups", "bias", "causal", "holes", "nothing hidden", "soft-cap", "transposed result")


@pytest.mark.parametrize("change", one_in(3, ONE))
def test_attention_is_one_function(change: str) -> None:
    mod = chain(change)
    assert kinds(mod) == ["attention"]
    arrays = drawn(mod)
    result = fuse_epilogue.compile(mod, threads=1)(*arrays)
    np.testing.assert_allclose(np.asarray(result), by_tvm(mod, arrays), rtol=0, atol=1e-6)


@pytest.mark.parametrize("change", ["scores are a result", "over rows", "powers", "three columns"])
def test_what_the_kernel_does_not_compute_stays(change: str) -> None:
    mod = chain(change)
    tvm.ir.assert_structural_equal(GroupAttention()(mod), mod)
    assert "attention" not in kinds(mod)


def test_floats_of_16_bits_stay() -> None:
    mod = chain(dtype="float16")
    tvm.ir.assert_structural_equal(GroupAttention()(mod), mod)


def by_einsum(heads: int, groups: int) -> Any:
    """Attention as torch.export writes ``einsum``: axes of one value, heads that are rows."""
    each = heads // groups
    shapes = {
        "q": (1, heads, ROWS, SIZE),
        "k": (1, groups, KEYS, SIZE),
        "v": (1, groups, KEYS, SIZE),
    }
    args = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    emit = builder.emit

    def moved(value: Any, axes: list[int], *shape: int) -> Any:
        return emit(op.reshape(emit(op.permute_dims(value, axes)), shape))

    with builder.function("main", args):
        with builder.dataflow():
            q, k, v = args
            q = emit(op.expand_dims(emit(op.reshape(q, (1, groups, each, ROWS, SIZE))), 5))
            q = moved(q, [1, 2, 3, 4, 0, 5], groups, each * ROWS, SIZE)
            k = moved(emit(op.expand_dims(k, [4, 5])), [1, 3, 0, 2, 4, 5], groups, SIZE, KEYS)
            s = emit(op.multiply(emit(op.matmul(q, k)), relax.const(0.25)))
            s = emit(op.reshape(s, (groups, each, ROWS, 1, 1, KEYS)))
            s = moved(s, [4, 0, 1, 2, 5, 3], 1, groups, each, ROWS, KEYS)
            p = emit(op.expand_dims(emit(op.nn.softmax(s)), 5))
            p = moved(p, [1, 2, 3, 4, 0, 5], groups, each * ROWS, KEYS)
            v = moved(emit(op.expand_dims(v, [4, 5])), [1, 2, 0, 3, 4, 5], groups, KEYS, SIZE)
            o = emit(op.reshape(emit(op.matmul(p, v)), (groups, each, ROWS, 1, 1, SIZE)))
            o = emit(op.permute_dims(o, [4, 0, 1, 2, 5, 3]))
            out = builder.emit_output(op.reshape(o, (1, heads, ROWS, SIZE)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.full
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (4, 1), (1, 1)])
def test_axes_may_be_moved_split_and_of_one_value(heads: int, groups: int) -> None:
    mod = by_einsum(heads, groups)
    assert kinds(mod) == ["attention"]
    arrays = drawn(mod)
    result = fuse_epilogue.compile(mod, threads=1)(*arrays)
    np.testing.assert_allclose(np.asarray(result), by_tvm(mod, arrays), rtol=0, atol=1e-6)


@pytest.mark.parametrize("one", [True, False])
def test_elements_after_attention_are_computed_with_it(one: bool) -> None:
    """What is computed several times of an element is another function."""
    q, gate = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("q", (2, 9, 8)), ("gate", (2, 9, 8) if one else (3, 2, 9, 8)))
    )
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", [q, gate]):
        with builder.dataflow():
            p = emit(op.nn.softmax(emit(op.matmul(q, emit(op.permute_dims(q, [0, 2, 1]))))))
            o = emit(op.matmul(p, q))
            out = builder.emit_output(op.multiply(emit(op.tanh(o)), gate))
        builder.emit_func_output(out)
    mod = builder.get()
    assert kinds(mod) == (["attention"] if one else ["attention", "elementwise"])
    arrays = drawn(mod)
    result = fuse_epilogue.compile(mod, threads=1)(*arrays)
    np.testing.assert_allclose(np.asarray(result), by_tvm(mod, arrays), rtol=0, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("queries", [1, ROWS, 300])
def test_floats_of_16_bits_are_widened_where_they_are_read(dtype: str, queries: int) -> None:
    mod = chain("widened", dtype, queries)
    assert kinds(mod) == ["attention"]
    narrow = [each.astype(dtype) for each in drawn(mod)]
    # NumPy passes no bfloat16 on.
    tensors = list(map(tvm.runtime.tensor, narrow))
    result = fuse_epilogue.compile(mod, threads=1)(*tensors).numpy().astype("float32")
    exact = by_tvm(chain("", queries=queries), [each.astype("float32") for each in narrow])
    # A rounding to 11 or to 8 bits.
    unit = 2.0 ** (-11 if dtype == "float16" else -8)
    np.testing.assert_allclose(result, exact, rtol=1.01 * unit, atol=2e-6)


def test_equal_attention_is_one_function() -> None:
    q = relax.Var("q", relax.TensorType((1, 2, 8, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [q]):
        with builder.dataflow():
            x = q
            for _ in range(3):
                k = builder.emit(op.permute_dims(x, [0, 1, 3, 2]))
                p = builder.emit(op.nn.softmax(builder.emit(op.matmul(x, k))))
                x = builder.emit(op.matmul(p, x))
            out = builder.emit_output(x)
        builder.emit_func_output(out)
    assert kinds(builder.get()) == ["attention"]


def test_views_that_others_read_stay_for_them() -> None:
    """A view of a group's operand that something else reads as well is computed for that."""
    x = relax.Var("x", relax.TensorType((1, 8, 2, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            q = builder.emit(op.permute_dims(x, [0, 2, 1, 3]))
            k = builder.emit(op.permute_dims(q, [0, 1, 3, 2]))
            p = builder.emit(op.nn.softmax(builder.emit(op.matmul(q, k))))
            o = builder.emit(op.matmul(p, q))
            out = builder.emit_output(op.add(o, q))
        builder.emit_func_output(out)
    mod = builder.get()
    assert "attention" in kinds(mod)
    arrays = drawn(mod)
    result = fuse_epilogue.compile(mod, threads=1)(*arrays)
    np.testing.assert_allclose(np.asarray(result), by_tvm(mod, arrays), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (np.tri(4, 4, dtype=bool), "j - i <= T.int64(0)"),
        (np.tri(3, 7, 2, dtype=bool)[None], "j - i <= T.int64(2)"),
        (np.tri(7, 3, -1, dtype=bool), "j - i <= T.int64(-1)"),
        (np.tri(4, 4, dtype=bool).T.copy(), "j - i >= T.int64(0)"),
        (np.tri(4, 4, 1, dtype=bool) ^ np.tri(4, 4, -2, dtype=bool), "j - i >= T.int64(-1)"),
        (np.stack([np.tri(4, dtype=bool)] * 2), "j - i <= T.int64(0)"),
        (np.stack([np.tri(4, dtype=bool), np.tri(4, k=1, dtype=bool)]), ""),
        (np.tri(4, 4, dtype=bool) ^ np.eye(4, 4, -1, dtype=bool), ""),
        (np.zeros((4, 4), bool), ""),
        (np.tri(4, 4, dtype="int32"), ""),
    ],
)
def test_constant_masks(mask: np.ndarray, text: str) -> None:
    element = mask_element(relax.const(mask))
    if not text:
        assert element is None
        return
    assert element is not None
    i, j = (tirx.Var(name, "int64") for name in "ij")
    assert str(element(i, j)).strip().endswith(text)
    assert mask_element(relax.const(np.ones_like(mask))) is ALL_TRUE


@pytest.mark.parametrize("change", ["hidden", "first columns", "added"])
def test_elements_of_constant_masks(change: str) -> None:
    window = np.tri(6, 7, dtype=bool) ^ np.tri(6, 7, -2, dtype=bool)
    shown = window | (np.tri(6, 7, dtype=bool) & (np.arange(7) < 2))
    masks = {"hidden": ~window, "first columns": shown, "added": np.where(shown, 0, -1e9)}
    mask = masks[change].astype("float32" if change == "added" else "bool")
    element = mask_element(relax.const(mask))
    assert element is not None
    analyzer = tvm.sym.Analyzer()
    for place, expected in np.ndenumerate(mask):
        value = element(*(tirx.const(each, "int64") for each in place))
        assert analyzer.simplify(value).value == expected
    mask[2, 5] = mask[2, 2]
    assert mask_element(relax.const(mask)) is None


def test_products_of_all_their_batch_axes() -> None:
    x = relax.Var("x", relax.TensorType((2, 3, 4, 5), "float32"))
    y = relax.Var("y", relax.TensorType((6, 5, 7), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            product = builder.emit(op.matmul(builder.emit(op.reshape(x, (6, 4, 5))), y))
            out = builder.emit_output(op.reshape(product, (2, 3, 4, 7)))
        builder.emit_func_output(out)
    mod = builder.get()
    done = FoldNoOps()(UnflattenProducts()(mod))
    shapes = [tuple(map(int, each.var.ty.shape)) for each in done["main"].body.blocks[0].bindings]
    assert shapes == [(2, 3, 5, 7), (2, 3, 4, 7)]
    arrays = drawn(mod)
    np.testing.assert_array_equal(by_tvm(done, arrays), by_tvm(mod, arrays))


def test_masks_of_places_are_constants() -> None:
    x = relax.Var("x", relax.TensorType((5,), "int64"))
    ones = relax.const(np.ones(5, "int64"), "int64")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            places = builder.emit(op.arange(2, 12, 2, "int64"))
            sums = builder.emit(op.cumsum(ones, 0))
            out = builder.emit_output(op.add(x, builder.emit(op.add(places, sums))))
        builder.emit_func_output(out)
    folded = relax.transform.FoldConstant()(FoldNoOps()(builder.get()))
    (binding,) = folded["main"].body.blocks[0].bindings
    assert binding.value.args[1].value.numpy().tolist() == [3, 6, 9, 12, 15]
