"""Functions of symbolic sizes, by kernels for numbers of rows: values, bounds, refusals."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T
from tvm.tirx.buffer import BufferType

from fuse_epilogue.recognize.row_axes import read_row_axes
from fuse_epilogue.schedules import host
from fuse_epilogue.transform.kinds import Work, candidates
from row_operators import function

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
SIZES = (1, 2, 3, 7, 17, 32, 33, 129)

#: By name: the operators, shapes of the inputs, and the kind of the kernels.
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], str]] = {
    "product": (
        lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)),
        [(N, 32), (32, 48), (48,)],
        "rows of contraction",
    ),
    "product of batches": (lambda x, w: op.matmul(x, w), [(2, N, 16), (16, 16)], "contraction"),
    "two sizes": (lambda x, w: op.matmul(x, w), [(M, N, 16), (16, 16)], "rows of contraction"),
    "softmax": (lambda x: op.nn.softmax(x, -1), [(N, 48)], "rows of row program"),
    "layer norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        [(3, N, 32), (32,), (32,)],
        "rows of row program",
    ),
    "elementwise": (lambda x, y: op.nn.gelu(op.add(x, y)), [(N, 16), (16,)], "elementwise"),
    "one element a row": (lambda x: op.exp(x), [(N,)], "rows of elementwise"),
    "a table for each row of one axis": (
        lambda x, y: op.add(x, y),
        [(3, N, 16), (N, 16)],
        "rows of elementwise",
    ),
    "rows that move apart": (
        lambda x: op.permute_dims(x, [1, 0, 2]),
        [(N, 4, 64)],
        "rows of elementwise",
    ),
    "convolution": (
        lambda x, w: op.nn.conv2d(x, w, padding=1),
        [(N, 3, 6, 6), (4, 3, 3, 3)],
        "rows of",
    ),
}


class Guarded:
    """Arrays that end, or begin, where a page begins that nobody may read or write."""

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end
        self._maps: list[Any] = []

    def array(self, values: np.ndarray) -> np.ndarray:
        page = mmap.PAGESIZE
        used = -(-max(1, values.nbytes) // page) * page
        area = mmap.mmap(-1, used + 2 * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(area))
        libc = ctypes.CDLL(None, use_errno=True)
        for start in (base, base + page + used):
            assert libc.mprotect(ctypes.c_void_p(start), page, 0) == 0
        start = page + (used - values.nbytes) // 64 * 64 if self.at_end else page
        found = np.frombuffer(area, values.dtype, values.size, start).reshape(values.shape)
        found[...] = values
        self._maps.append(area)
        return found


def scheduled(name: str, threads: int = 1) -> tuple[Any, Any, Any]:
    rule, shapes, _ = FUNCTIONS[name]
    func = function(rule, shapes)
    found = next(candidates(Work(func, host(threads), threads, frozenset())))
    return func, found, tvm.compile(_main(found.func), target=host(threads))


def _main(func: Any) -> Any:
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def sized(func: Any, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    buffers = [each for each in func.params if isinstance(each.ty, BufferType)]
    return [
        tuple(sizes[size.name] if isinstance(size, tirx.Var) else int(size) for size in each.shape)
        for each in buffers
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_size_is_right_and_in_bounds(name: str) -> None:
    func, found, made = scheduled(name)
    assert FUNCTIONS[name][2] in found.kind
    expected = tvm.compile(_main(func), target=host(1))
    rng = np.random.default_rng(0)
    for size in SIZES:
        for at_end in (True, False):
            guarded = Guarded(at_end)
            shapes = sized(func, {"n": size, "m": 3})
            inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
            given = [guarded.array(each) for each in inputs]
            result = guarded.array(np.full(shapes[-1], np.nan, "float32"))
            made["main"](*(tvm.runtime.from_dlpack(each) for each in (*given, result)))
            aim = tvm.runtime.tensor(np.zeros(shapes[-1], "float32"))
            expected["main"](*map(tvm.runtime.tensor, inputs), aim)
            bound = 1e-5 * np.abs(aim.numpy()).max()
            np.testing.assert_allclose(result, aim.numpy(), rtol=0, atol=bound)
            for own, given_one in zip(inputs, given, strict=True):
                np.testing.assert_array_equal(own, given_one)


@pytest.mark.parametrize("name", ["product", "softmax"])
def test_two_threads(name: str) -> None:
    func, _, made = scheduled(name, 2)
    _, _, single = scheduled(name)
    for size in (1, 31, 32, 250):
        shapes = sized(func, {"n": size})
        inputs = [np.random.default_rng(1).standard_normal(s).astype("float32") for s in shapes]
        results = []
        for each in (made, single):
            arrays = [tvm.runtime.tensor(own) for own in inputs]
            each["main"](*arrays)
            results.append(arrays[-1].numpy())
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


def test_constants_are_packed_once_for_all_numbers_of_rows() -> None:
    func = function(*FUNCTIONS["product"][:2])
    found = next(candidates(Work(func, host(1), 1, frozenset({1}))))
    assert found.kind == "rows of contraction"
    assert list(found.packing) == [1]
    weight = np.arange(32 * 48, dtype="float32").reshape(32, 48) / 1000
    packed = found.packing[1].pack(weight)
    made = tvm.compile(_main(found.func), target=host(1))
    for size in SIZES:
        x = np.random.default_rng(size).standard_normal((size, 32)).astype("float32")
        result = tvm.runtime.tensor(np.zeros((size, 48), "float32"))
        made["main"](*map(tvm.runtime.tensor, (x, packed, np.zeros(48, "float32"))), result)
        np.testing.assert_allclose(result.numpy(), np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)


def test_rows_of_several_axes_are_counted_together() -> None:
    axes = read_row_axes(function(*FUNCTIONS["two sizes"][:2]))
    assert axes is not None and len(axes.rows) == 2
    # A table that has one of the axes alone: the other one is a loop of its own.
    apart = read_row_axes(function(*FUNCTIONS["a table for each row of one axis"][:2]))
    assert apart is not None and apart.rows == () and len(apart.outer) == 1


def _of(body: Any) -> Any:
    """Return y[i, j] = body(x, i, j, n) of n rows."""
    n = tirx.Var("n", "int64")
    x = tvm.te.placeholder((n, 4), "float32", "x")
    return tvm.te.create_prim_func([x, tvm.te.compute((n, 4), lambda i, j: body(x, i, j, n))])


@pytest.mark.parametrize(
    "body",
    [
        lambda x, i, j, n: x[n - 1 - i, j],
        lambda x, i, j, n: x[tirx.max(i - 1, 0), j],
        lambda x, i, j, n: x[i, j] * i.astype("float32"),
        lambda x, i, j, n: x[i, j] * n.astype("float32"),
        lambda x, i, j, n: x[i, tirx.min(i, 3)],
        lambda x, i, j, n: x[0, j],
        lambda x, i, j, n: x[j, j],
    ],
)
def test_rows_that_are_not_independent(body: Any) -> None:
    assert read_row_axes(_of(lambda x, i, j, n: x[i, j] + x[i, 0])) is not None
    assert read_row_axes(_of(body)) is None


@pytest.mark.parametrize(
    ("rule", "shapes"),
    [
        (lambda x: op.sum(x, 0), [(N, 4)]),
        (lambda x: op.nn.softmax(x, 0), [(N, 4)]),
        (lambda x, y: op.matmul(x, y), [(4, N), (N, 4)]),
        (lambda x: op.exp(x), [(4, 4)]),
    ],
)
def test_sizes_that_are_not_those_of_rows(rule: Any, shapes: Any) -> None:
    assert read_row_axes(function(rule, shapes)) is None


@pytest.mark.parametrize(("columns", "known"), [(4, False), ((4, 64), True)])
def test_rows_that_move_apart_have_loops_of_their_own(columns: Any, known: bool) -> None:
    shape = (N, 4) if columns == 4 else (N, *columns)
    order = [1, 0, *range(2, len(shape))]
    func = function(lambda x: op.permute_dims(x, order), [shape])
    axes = read_row_axes(func)
    assert axes is not None and axes.inner is None and len(axes.outer) == 2
    # A kernel for one element would be slower than TVM's loops.
    assert (next(candidates(Work(func, host(1), 1, frozenset())), None) is not None) == known


@T.prim_func(private=True, s_tir=True)
def updated(x: T.Buffer((3, 4), "float32"), n: T.int64) -> None:
    for i, j in T.grid(3, 4):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = x[vi, vj] + T.cast(n, "float32")


def test_a_number_as_a_parameter_is_no_size() -> None:
    assert read_row_axes(updated) is None


def test_a_model_says_how_functions_of_symbolic_sizes_are_compiled() -> None:
    import fuse_epilogue

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((N, 16), "float32"))
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.matmul(x, relax.const(weight)))))
            out = builder.emit_output(op.cumsum(y, 0))
        builder.emit_func_output(out)
    model = fuse_epilogue.compile(builder.get(), host(1))
    kinds = {each.kind: each.why for each in model.report.functions}
    assert kinds == {
        "rows of contraction": "",
        "default": "a size that is not constant is not that of independent rows",
    }
    for size in SIZES:
        given = np.random.default_rng(size).standard_normal((size, 16)).astype("float32")
        expected = np.maximum(given @ weight, 0).cumsum(axis=0)
        np.testing.assert_allclose(model(given), expected, rtol=1e-4, atol=1e-4)
