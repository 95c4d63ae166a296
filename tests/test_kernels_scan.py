"""Running sums and products are bit for bit those of TVM's loops, and nothing else is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax, te, topi

import fuse_epilogue
from fuse_epilogue.kernels.cpu import scan
from fuse_epilogue.recognize.scan import read_scan
from fuse_epilogue.schedules import host
from kernel_runs import run as fenced_run
from tiers import crossed

SHAPES = [(7,), (1,), (19, 33), (8, 5), (3, 4, 17), (2, 9, 70), (2, 1, 3), (5, 6, 1)]


def of(operator: Any, shape: tuple[int, ...], axis: int, given: str, **options: Any) -> Any:
    x = te.placeholder(shape, given, "x")
    return te.create_prim_func([x, operator(x, axis, **options)])


def run(func: Any, array: np.ndarray, dtype: str, threads: int) -> np.ndarray:
    return fenced_run(func, [array], array.shape, dtype, host(threads))


@pytest.mark.usefixtures("free_threads")
@crossed(shape=SHAPES, threads=(1, 2))
def test_every_axis(shape: tuple[int, ...], threads: int) -> None:
    rng = np.random.default_rng(0)
    for axis in range(len(shape)):
        for operator in (topi.cumsum, topi.cumprod):
            func = of(operator, shape, axis, "float32")
            found = read_scan(func)
            assert found is not None
            assert found.axis == axis or shape[axis] == 1
            array = rng.standard_normal(shape).astype("float32")
            array.reshape(-1)[0] = -0.0
            made = scan.schedule(found, host(threads), threads).func
            got, expected = (run(each, array, "float32", threads) for each in (made, func))
            np.testing.assert_array_equal(got.view("int32"), expected.view("int32"))


@pytest.mark.parametrize(("given", "summed"), [("int32", "int64"), ("int8", "int32")])
def test_types(given: str, summed: str) -> None:
    func = of(topi.cumsum, (6, 21), 1, given, dtype=summed)
    found = read_scan(func)
    assert found is not None
    array = np.random.default_rng(1).integers(-99, 99, (6, 21)).astype(given)
    made = scan.schedule(found, host(1)).func
    np.testing.assert_array_equal(run(made, array, summed, 1), array.cumsum(1, dtype=summed))


@pytest.mark.parametrize(
    "func",
    [
        of(topi.cumsum, (4, 5), 1, "float32", exclusive=True),
        of(topi.flip, (4, 5), 1, "float32"),
        te.create_prim_func([x := te.placeholder((4, 5), "float32", "cumsum"), topi.exp(x)]),
    ],
    ids=["exclusive", "flip", "name"],
)
def test_what_is_not_a_scan(func: Any) -> None:
    assert read_scan(func) is None


def test_a_model() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 8, 5), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.cumsum(x, 1)))
        builder.emit_func_output(out)
    model = fuse_epilogue.compile(builder.get(), threads=1)
    assert [each.kind for each in model.report.functions] == ["scan"]
    given = np.random.default_rng(2).standard_normal((3, 8, 5)).astype("float32")
    np.testing.assert_allclose(np.asarray(model(given)), given.cumsum(1), rtol=1e-5, atol=1e-5)
