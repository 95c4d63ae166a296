"""Attention with another denominator, and with results of its rows, is one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import fuse_epilogue
from fuse_epilogue.models.graph.joined_softmax import SplitJoinedSoftmax
from test_models_attention import kinds
from tiers import crossed

op = relax.op
HEADS, SIZE = 3, 8
Emit = Callable[[Any], Any]


def shares(emit: Emit, s: Any) -> tuple[Any, Any, Any]:
    """Exponentials, their sums, and the maxima."""
    highest = emit(op.max(s, -1, keepdims=True))
    e = emit(op.exp(emit(op.subtract(s, highest))))
    return e, emit(op.sum(e, -1, keepdims=True)), highest


def divided_after(emit: Emit, s: Any, v: Any, _: Any) -> list[Any]:
    e, total, _ = shares(emit, s)
    return [op.divide(emit(op.matmul(e, v)), total)]


def plus_one(emit: Emit, s: Any, v: Any, _: Any) -> list[Any]:
    e, total, highest = shares(emit, s)
    more = emit(op.exp(emit(op.negative(highest))))
    return [op.matmul(emit(op.divide(e, emit(op.add(total, more)))), v)]


def log_sums(emit: Emit, s: Any, v: Any, _: Any) -> list[Any]:
    e, total, highest = shares(emit, s)
    out = emit(op.matmul(emit(op.divide(e, total)), v))
    return [out, op.squeeze(emit(op.add(emit(op.log(total)), highest)), [-1])]


def gated(emit: Emit, s: Any, v: Any, t: Any) -> list[Any]:
    """A sink as a factor of the result."""
    e, total, highest = shares(emit, s)
    less = emit(op.subtract(emit(op.add(emit(op.log(total)), highest)), t))
    out = emit(op.divide(emit(op.matmul(e, v)), total))
    return [op.multiply(out, emit(op.sigmoid(less)))]


def sinks(first: bool) -> Callable[..., list[Any]]:
    """A logit of each head beside those of the keys, as models with attention sinks write it."""

    def form(emit: Emit, s: Any, v: Any, t: Any) -> list[Any]:
        *batch, keys = list(s.ty.shape)
        t = emit(op.broadcast_to(t, (*batch, 1)))
        joined = emit(op.concat([t, s] if first else [s, t], axis=-1))
        joined = emit(op.subtract(joined, emit(op.max(joined, -1, keepdims=True))))
        begin = int(first)
        p = op.strided_slice(emit(op.nn.softmax(joined)), [3], [begin], [keys + begin])
        return [op.matmul(emit(p), v)]

    return form


FORMS: dict[str, Callable[..., list[Any]]] = {
    "divided after": divided_after,
    "plus one": plus_one,
    "log-sum-exp": log_sums,
    "gated": gated,
    "sink last": sinks(first=False),
    "sink first": sinks(first=True),
}


def model(form: str, queries: Any, keys: Any, causal: bool = False) -> tvm.IRModule:
    """A form of attention of lengths that are numbers or names."""
    n, m = (tirx.Var(each, "int64") if isinstance(each, str) else each for each in (queries, keys))
    shapes = {"q": (1, HEADS, n, SIZE), "k": (1, HEADS, m, SIZE), "v": (1, HEADS, m, SIZE)}
    shapes["t"] = (1, HEADS, 1, 1)
    args = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", args):
        with builder.dataflow():
            q, k, v, t = args
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            if causal:
                shown = relax.const(np.tri(n, m, m // 2, dtype=bool)[None, None])
                s = emit(op.where(shown, s, relax.const(-np.inf, "float32")))
            made = FORMS[form](emit, s, v, t)
            results = [builder.emit_output(builder.normalize(each)) for each in made]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()


def drawn(queries: int, keys: int) -> list[np.ndarray]:
    rng = np.random.default_rng(queries * keys)
    shapes = [(1, HEADS, count, SIZE) for count in (queries, keys, keys)]
    return [rng.standard_normal(shape).astype("float32") for shape in (*shapes, (1, HEADS, 1, 1))]


def by_tvm(mod: tvm.IRModule, *calls: list[np.ndarray]) -> list[np.ndarray]:
    """All results of some calls of the model as TVM compiles it."""
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    results = [machine["main"](*map(tvm.runtime.tensor, arrays)) for arrays in calls]
    return [each.numpy() for found in results for each in listed(found)]


def by_us(mod: tvm.IRModule, *calls: list[np.ndarray]) -> list[np.ndarray]:
    """All results of some calls of the model, compiled as one function."""
    made = fuse_epilogue.compile(mod, threads=1)
    assert [each.kind for each in made.report.functions] == ["attention"]
    return [each for arrays in calls for each in listed(made(*arrays))]


def listed(found: Any) -> list[Any]:
    return [found] if hasattr(found, "shape") else list(found)


@crossed(form=tuple(FORMS), sizes=((1, 5), (2, 40), (9, 70), (40, 300)), causal=(False, True))
def test_it_is_one_function(form: str, sizes: tuple[int, int], causal: bool) -> None:
    mod, arrays = model(form, *sizes, causal), drawn(*sizes)
    for got, expected in zip(by_us(mod, arrays), by_tvm(mod, arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("form", "queries"), [("divided after", 1), ("log-sum-exp", 9)])
def test_there_may_be_one_key(form: str, queries: int) -> None:
    mod, arrays = model(form, queries, 1), drawn(queries, 1)
    for got, expected in zip(by_us(mod, arrays), by_tvm(mod, arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("form", ["log-sum-exp", "plus one", "sink last"])
def test_lengths_may_be_symbolic(form: str) -> None:
    mod = model(form, "n", "m")
    made = fuse_epilogue.compile(mod, threads=1)
    assert [each.kind for each in made.report.functions] == ["attention"]
    for sizes in ((1, 1), (17, 65), (40, 300)):
        arrays = drawn(*sizes)
        found = made(*arrays)
        found = found if isinstance(found, tuple | list) else [found]
        for got, expected in zip(found, by_tvm(model(form, *sizes), arrays), strict=True):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_special_values_are_those_of_the_program(form: str) -> None:
    """Infinities and NaN in every operand, and sinks far above and below the scores."""
    sizes = (9, 70)
    mod, arrays = model(form, *sizes, causal=True), drawn(*sizes)
    q, k, v, t = arrays
    q[0, 0, 1, 2] = np.nan
    q[0, 0, 2, 2] = np.inf
    k[0, 1, 60, 1] = -np.inf
    v[0, 2, 5, 3] = np.inf
    calls = []
    for sink in ((200.0, -200.0, 0.0), (np.inf, -np.inf, np.nan), (-3e38, 3e38, 1.0)):
        t[0, :, 0, 0] = sink
        calls.append([q, k, v, t.copy()])
    for got, expected in zip(by_us(mod, *calls), by_tvm(mod, *calls), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)


def test_results_of_rows_stay_where_they_read_the_scores() -> None:
    """The mean of the scores is not a value of the cascade."""
    builder = relax.BlockBuilder()
    args = [relax.Var(name, relax.TensorType((1, 2, 9, 8), "float32")) for name in "qv"]
    with builder.function("main", args):
        with builder.dataflow():
            q, v = args
            s = builder.emit(op.matmul(q, builder.emit(op.permute_dims(q, [0, 1, 3, 2]))))
            p = builder.emit(op.nn.softmax(s))
            outputs = [builder.emit_output(op.matmul(p, v)), builder.emit_output(op.mean(s, -1))]
        builder.emit_func_output(relax.Tuple(outputs))
    assert "attention" not in kinds(builder.get())


def joined(change: str) -> tvm.IRModule:
    """A softmax of joined columns; `change` says what is read of it."""
    builder = relax.BlockBuilder()
    args = [
        relax.Var(n, relax.TensorType((4, size), "float32")) for n, size in (("x", 6), ("t", 1))
    ]
    emit = builder.emit
    with builder.function("main", args):
        with builder.dataflow():
            x, t = args
            axis = 0 if change == "another axis" else -1
            p = emit(op.nn.softmax(emit(op.concat([x, t], axis=-1)), axis=axis))
            begin, end = {"other columns": (1, 7), "fewer columns": (0, 5)}.get(change, (0, 6))
            step = 2 if change == "every other column" else 1
            out = builder.emit_output(op.strided_slice(p, [1], [begin], [end], [step]))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(
    "change", ["another axis", "other columns", "fewer columns", "every other column"]
)
def test_other_slices_of_a_softmax_stay(change: str) -> None:
    mod = joined(change)
    tvm.ir.assert_structural_equal(SplitJoinedSoftmax()(mod), mod)


def test_a_softmax_of_joined_columns_is_split() -> None:
    mod = joined("")
    done = SplitJoinedSoftmax()(mod)
    assert "concat" not in done.script()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, size)).astype("float32") for size in (6, 1)]
    np.testing.assert_allclose(by_tvm(done, arrays)[0], by_tvm(mod, arrays)[0], rtol=1e-6)
