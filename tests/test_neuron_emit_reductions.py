"""One instruction that computes elements and reduces them, where two blocks say so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from fuse_epilogue.kernels.trainium.tile_writer import Span, TileWriter
from fuse_epilogue.neuron import Kernel, emit

ROWS, COLUMNS = 64, 96


def add(a: Any, b: Any) -> Any:
    return a + b


def kernel_of(
    element: Callable[[Any], Any],
    inside: Callable[[Any, Any], Any] = lambda own, _: own,
    combine: Callable[[Any, Any], Any] = add,
    start: float = 0.0,
    dtype: str = "float32",
    columns: int = COLUMNS,
    engine: str = "",
    between: bool = False,
) -> Kernel:
    """Elements y of x, and reductions of each row in a block after; `inside` is what is reduced."""
    x = te.placeholder((ROWS, COLUMNS), "float32", "x")
    y = te.compute((ROWS, COLUMNS), lambda m, n: x[m, n].astype(dtype), "y")
    total = te.compute((ROWS,), lambda m: x[m, 0], "total")
    func = te.create_prim_func([x, y, total])
    writer = TileWriter(func, "int32")
    with writer.function():
        x, y, total = (writer.parameters[param] for param in func.params)
        loaded = writer.tile("loaded", (ROWS, COLUMNS), "float32")
        made = writer.tile("made", (ROWS, COLUMNS), dtype)
        summed = writer.tile("summed", (ROWS,), "float32")
        whole = {"m": Span(ROWS, "P"), "n": Span(COLUMNS)}
        with writer.block("load", whole) as at:
            T.buffer_store(loaded, x[at["m"], at["n"]], (at["m"], at["n"]))
        with writer.block("elements", whole) as at:
            value = element(loaded[at["m"], at["n"]])
            value = value if dtype == "float32" else T.cast(value, dtype)
            T.buffer_store(made, value, (at["m"], at["n"]))
        if between:
            with writer.block("again", whole) as at:
                T.buffer_store(made, loaded[at["m"], at["n"]], (at["m"], at["n"]))
        spans = {"m": Span(ROWS, "P"), "n": Span(columns, summed=True)}
        with writer.block("total", spans, engine=engine) as at:
            with T.init():
                T.buffer_store(summed, tirx.const(start, "float32"), (at["m"],))
            value = inside(made[at["m"], at["n"]], loaded[at["m"], at["n"]])
            T.buffer_store(summed, combine(summed[at["m"]], value), (at["m"],))
        with writer.block("store", whole) as at:
            T.buffer_store(y, made[at["m"], at["n"]], (at["m"], at["n"]))
        with writer.block("store_total", {"m": Span(ROWS, "P")}) as at:
            T.buffer_store(total, summed[at["m"]], (at["m"],))
    kernel = emit(writer.written())
    kernel.check("trn2")
    return kernel


def exp(x: Any) -> Any:
    return T.exp(x)


def doubled(x: Any) -> Any:
    return x * tirx.const(2, "float32")


def operations(kernel: Kernel) -> set[str]:
    return {step.op for step in kernel.trace().steps} - {"dma_copy"}


DATA = np.random.default_rng(3).normal(size=(ROWS, COLUMNS)).astype("float32")

TOGETHER: dict[str, tuple[dict[str, Any], str, Callable[[np.ndarray], np.ndarray]]] = {
    "a sum": ({"element": exp}, "activation_reduce", lambda x: np.exp(x).sum(1)),
    "a sum of a multiple": ({"element": doubled}, "tensor_scalar_reduce", lambda x: 2 * x.sum(1)),
    "a maximum": (
        {"element": doubled, "combine": T.max, "start": -math.inf},
        "tensor_scalar_reduce",
        lambda x: 2 * x.max(1),
    ),
    "a sum before rounding": (
        {"element": exp, "inside": lambda _, x: exp(x), "dtype": "bfloat16"},
        "activation_reduce",
        lambda x: np.exp(x).sum(1),
    ),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_one_instruction(name: str) -> None:
    options, op, expected = TOGETHER[name]
    kernel = kernel_of(**options)
    assert operations(kernel) == {op}
    y, total = kernel(DATA)
    np.testing.assert_allclose(total, expected(DATA), rtol=1e-6, atol=1e-5)
    alone = exp if options["element"] is exp else doubled
    wanted = np.exp(DATA) if alone is exp else 2 * DATA
    np.testing.assert_allclose(y.astype("float64"), wanted, rtol=2.0**-8)


#: Twins of the above in which the elements are not what is reduced, or no instruction does both.
APART: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "rounded elements": (
        {"element": exp, "inside": lambda own, _: T.cast(own, "float32"), "dtype": "bfloat16"},
        lambda x: np.exp(x).astype("bfloat16").astype("float32").sum(1),
    ),
    "some columns": ({"element": exp, "columns": 90}, lambda x: np.exp(x[:, :90]).sum(1)),
    "a sum that begins elsewhere": (
        {"element": exp, "start": 1.0},
        lambda x: np.exp(x).sum(1) + 1,
    ),
    "a maximum by the scalar engine": (
        {"element": exp, "combine": T.max, "start": -math.inf},
        lambda x: np.exp(x).max(1),
    ),
    "two operations": (
        {"element": lambda x: doubled(x) + tirx.const(1, "float32")},
        lambda x: (2 * x + 1).sum(1),
    ),
    "an engine of its own": ({"element": exp, "engine": "vector"}, lambda x: np.exp(x).sum(1)),
    "elements written again": ({"element": exp, "between": True}, lambda x: x.sum(1)),
    "other elements": ({"element": exp, "inside": lambda _, x: x}, lambda x: x.sum(1)),
}


@pytest.mark.parametrize("name", APART)
def test_two_instructions(name: str) -> None:
    options, expected = APART[name]
    kernel = kernel_of(**options)
    assert "tensor_reduce" in operations(kernel)
    assert not operations(kernel) & {"activation_reduce", "tensor_scalar_reduce"}
    np.testing.assert_allclose(kernel(DATA)[1], expected(DATA), rtol=1e-6, atol=1e-5)
