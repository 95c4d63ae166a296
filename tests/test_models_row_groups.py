"""Reductions along the same rows become one function, with whatever is between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.row_groups import GroupRows
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule, schedules_of

op = relax.op
ROWS, SIZE = 5, 37
Emit = Callable[[Any], Any]


def module(write: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """Return a module of a function that returns what `write` emits."""
    args = [relax.Var(f"x{n}", relax.TensorType(shape, dtype)) for n, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", args):
        with builder.dataflow():
            found = write(builder.emit, *args)
            several = isinstance(found, tuple)
            outputs = [builder.emit_output(each) for each in (found if several else (found,))]
        builder.emit_func_output(relax.Tuple(outputs) if several else outputs[0])
    return builder.get()


def log_sum_exp(emit: Emit, x: Any, _y: Any) -> Any:
    highest = emit(op.max(x, axis=-1, keepdims=True))
    total = emit(op.sum(emit(op.exp(emit(op.subtract(x, highest)))), axis=-1))
    return emit(op.add(emit(op.log(total)), emit(op.squeeze(highest, axis=[-1]))))


def norm_of_sum(emit: Emit, x: Any, y: Any) -> Any:
    """An RMS norm that returns the sum it is of as well."""
    h = emit(op.add(x, y))
    mean = emit(op.mean(emit(op.multiply(h, h)), axis=-1, keepdims=True))
    return emit(op.divide(h, emit(op.sqrt(mean)))), h


def cosine(emit: Emit, x: Any, y: Any) -> Any:
    def total(a: Any, b: Any) -> Any:
        return emit(op.sum(emit(op.multiply(a, b)), axis=-1))

    squares = emit(op.multiply(total(x, x), total(y, y)))
    return emit(op.divide(total(x, y), emit(op.sqrt(squares))))


def range_of(emit: Emit, x: Any, _y: Any) -> Any:
    """Reductions that have only the operand in common."""
    return emit(op.max(x, axis=-1)), emit(op.min(x, axis=-1))


def picked(emit: Emit, x: Any, _y: Any) -> Any:
    places = relax.const(np.arange(ROWS, dtype="int64")[:, None] * 7)
    return emit(op.gather_elements(emit(op.nn.log_softmax(x)), places, axis=1))


def widened(emit: Emit, x: Any, _y: Any) -> Any:
    wide = emit(op.astype(x, "float32"))
    return emit(op.astype(emit(op.nn.softmax(wide)), str(x.ty.dtype)))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


EXPECTED: dict[Callable[..., Any], Callable[..., Any]] = {
    log_sum_exp: lambda x, y: np.log(np.exp(x).sum(-1)),
    norm_of_sum: lambda x, y: ((x + y) / np.sqrt(((x + y) ** 2).mean(-1, keepdims=True)), x + y),
    cosine: lambda x, y: (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)),
    range_of: lambda x, y: (x.max(-1), x.min(-1)),
    picked: lambda x, y: _log_softmax(x)[range(ROWS), range(0, 7 * ROWS, 7)][:, None],
}


def kinds(mod: Any) -> list[str]:
    found = schedules_of(scheduled(mod, ScheduleModule(host(1), threads=1)))
    return [each.kind for each in found or ()]


@pytest.mark.parametrize("write", EXPECTED, ids=lambda each: each.__name__)
def test_reductions_along_the_same_rows_are_one_function(write: Callable[..., Any]) -> None:
    mod = module(write, (ROWS, SIZE), (ROWS, SIZE))
    assert kinds(mod) == ["row program"]
    arrays = np.random.default_rng(0).standard_normal((2, ROWS, SIZE))
    found = fuse_epilogue.compile(mod, threads=1)(*arrays.astype("float32"))
    expected = EXPECTED[write](*arrays)
    pairs = ((x if isinstance(x, tuple | list) else [x]) for x in (found, expected))
    for own, exact in zip(*pairs, strict=True):
        np.testing.assert_allclose(np.asarray(own), exact, rtol=0, atol=2e-6)


@pytest.mark.full
def test_cross_entropy_with_targets_that_are_constants() -> None:
    """TVM folds the sums of their weights into constants, which are no calls."""
    torch = pytest.importorskip("torch", reason="the loss is a function of PyTorch")

    class Loss(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            targets = torch.tensor([1, 0, 3, 2])
            return torch.nn.functional.cross_entropy(x, targets, label_smoothing=0.1)

    x = torch.randn(4, SIZE)
    found = fuse_epilogue.compile(Loss().eval(), example_inputs=(x,), threads=1)(x)
    np.testing.assert_allclose(np.asarray(found), Loss()(x).numpy(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_16_bits_are_widened_where_they_are_read(dtype: str) -> None:
    assert kinds(module(widened, (ROWS, SIZE), (1,), dtype=dtype)) == ["row program"]


def gated(emit: Emit, x: Any, weights: Any) -> Any:
    """Rows that wait for a product of their means."""
    gate = emit(op.matmul(emit(op.mean(x, axis=-1, keepdims=True)), weights))
    scaled = emit(op.multiply(x, gate))
    return emit(op.subtract(scaled, emit(op.max(x, axis=-1, keepdims=True))))


def test_what_waits_for_another_function_is_not_of_the_group() -> None:
    mod = GroupRows()(module(gated, (SIZE, SIZE), (1, SIZE)))
    calls = [each for each in values(mod) if isinstance(each, tvm.ir.Call)]
    names = ["relax.call_tir", "relax.matmul", "relax.multiply", "relax.subtract"]
    assert [each.op.name for each in calls] == names
    assert len(calls[0].ty.fields) == 2  # the mean, which the product waits for, and the maximum


def after_product(emit: Emit, x: Any, weights: Any) -> Any:
    biased = emit(op.add(emit(op.matmul(x, weights)), relax.const(1.0)))
    return emit(op.nn.softmax(biased))


def long_rows(emit: Emit, x: Any, _y: Any) -> Any:
    return emit(op.subtract(x, emit(op.max(x, axis=-1, keepdims=True)))), emit(op.sum(x, axis=-1))


def strided(emit: Emit, x: Any, _y: Any) -> Any:
    """Sums along both axes: rows of one are columns of the other."""
    sums = [emit(op.sum(x, axis=axis, keepdims=True)) for axis in (0, 1)]
    return emit(op.add(*sums))


@pytest.mark.parametrize(
    ("write", "shape"),
    [(after_product, (SIZE, SIZE)), (long_rows, (2, 1 << 17)), (strided, (SIZE, SIZE))],
    ids=["after a product", "long", "both axes"],
)
def test_other_functions_stay(write: Callable[..., Any], shape: tuple[int, int]) -> None:
    mod = module(write, shape, (SIZE, SIZE))
    tvm.ir.assert_structural_equal(GroupRows()(mod), mod)


def values(mod: Any) -> list[Any]:
    """Return what is computed, in order."""
    return [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
