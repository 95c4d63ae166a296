"""Functions of symbolic sizes, by kernels for numbers of rows: values, bounds, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T
from tvm.sym import Analyzer
from tvm.tirx.buffer import BufferType

from fuse_epilogue.kernels.cpu.symbolic_rows.row_axes import RowAxes, row_axes
from fuse_epilogue.recognize.independent_axes import read_independent_axes
from fuse_epilogue.recognize.windowed import read_windowed
from fuse_epilogue.schedules import host
from fuse_epilogue.tir.walk import substitute, variables
from fuse_epilogue.transform.kinds import Work, candidates
from generated.fences import Fenced
from generated_modules.data import Fenced as AlignedFenced
from row_operators import function

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
SIZES = (1, 2, 3, 7, 17, 32, 33, 129)


def convolved(x: Any, w: Any, padding: int = 1, **options: Any) -> Any:
    """Convolve images whose channels are innermost."""
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return op.nn.conv2d(x, w, padding=padding, **layouts, **options)


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
    "rows beside each other": (
        lambda x, y: op.stack((x, y), 1),
        [(M, N, 10), (M, N, 10)],
        "rows of elementwise",
    ),
    "rows inside of others": (
        lambda x: op.permute_dims(x, [0, 2, 3, 1]),
        [(2, 12, M, N)],
        "rows of elementwise",
    ),
    "windows": (
        lambda x, w, b: op.nn.relu(op.add(convolved(x, w), b)),
        [(1, M, N, 4), (20, 3, 3, 4), (20,)],
        "rows of contraction",
    ),
    "windows with steps, of several images": (
        lambda x, w: convolved(x, w, strides=(1, 2), dilation=2, padding=2),
        [(3, M, N, 4), (8, 3, 3, 4)],
        "rows of contraction",
    ),
    "windows of channels": (
        lambda x, w: convolved(x, w, groups=8),
        [(1, M, N, 8), (8, 3, 3, 1)],
        "rows of",
    ),
    "windows and what they are of": (
        lambda x, w: op.add(convolved(x, w), x),
        [(1, M, N, 4), (4, 3, 3, 4)],
        "rows of contraction",
    ),
    "windows of a sequence": (
        lambda x, w: op.nn.conv1d(x, w, padding=2),
        [(2, 6, N), (10, 6, 5)],
        "rows of contraction",
    ),
    "largest of windows": (
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"),
        [(1, M, N, 16)],
        "rows of row program",
    ),
    "convolution": (
        lambda x, w: op.nn.conv2d(x, w, padding=1),
        [(N, 3, 6, 6), (4, 3, 3, 3)],
        "rows of",
    ),
}


def guarded(values: np.ndarray, at_end: bool) -> np.ndarray:
    """Return an array that ends, or begins, where a page begins that cannot be read or written."""
    return AlignedFenced(values).array if at_end else Fenced(values, "beginning").array


def scheduled(name: str, threads: int = 1) -> tuple[Any, Any, Any]:
    rule, shapes, _ = FUNCTIONS[name]
    func = function(rule, shapes)
    found = next(candidates(Work(func, host(threads), threads, frozenset())))
    return func, found, tvm.compile(_main(found.func), target=host(threads))


def _main(func: Any) -> Any:
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def sized(func: Any, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    buffers = [each for each in func.params if isinstance(each.ty, BufferType)]

    def value(size: Any) -> int:
        table = {var: tirx.const(sizes[var.name], "int64") for var in variables(size)}
        return int(Analyzer().simplify(substitute(size, table)))

    return [tuple(map(value, each.shape)) for each in buffers]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_size_is_right_and_in_bounds(name: str) -> None:
    func, found, made = scheduled(name)
    assert FUNCTIONS[name][2] in found.kind
    expected = tvm.compile(_main(func), target=host(1))
    rng = np.random.default_rng(0)
    for size in SIZES:
        for at_end in (True, False):
            shapes = sized(func, {"n": size, "m": 3})
            inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
            given = [guarded(each, at_end) for each in inputs]
            result = guarded(np.full(shapes[-1], np.nan, "float32"), at_end)
            made["main"](*(tvm.runtime.from_dlpack(each) for each in (*given, result)))
            aim = tvm.runtime.tensor(np.zeros(shapes[-1], "float32"))
            expected["main"](*map(tvm.runtime.tensor, inputs), aim)
            bound = 1e-5 * np.abs(aim.numpy()).max()
            np.testing.assert_allclose(result, aim.numpy(), rtol=0, atol=bound)
            for own, given_one in zip(inputs, given, strict=True):
                np.testing.assert_array_equal(own, given_one)


@pytest.mark.parametrize("name", ["product", "softmax", "windows"])
def test_two_threads(name: str) -> None:
    func, _, made = scheduled(name, 2)
    _, _, single = scheduled(name)
    for size in (1, 31, 32, 250):
        shapes = sized(func, {"n": size, "m": 5})
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


def _row_axes(func: Any) -> RowAxes:
    found = read_independent_axes(func)
    assert found is not None
    return row_axes(found)


def test_rows_of_several_axes_are_counted_together() -> None:
    assert len(_row_axes(function(*FUNCTIONS["two sizes"][:2])).rows) == 2
    # A table that has one of the axes alone: the other one is a loop of its own.
    apart = _row_axes(function(*FUNCTIONS["a table for each row of one axis"][:2]))
    assert apart.rows == () and len(apart.outer) == 1


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
    assert read_independent_axes(_of(lambda x, i, j, n: x[i, j] + x[i, 0])) is not None
    assert read_independent_axes(_of(body)) is None


@pytest.mark.parametrize(
    ("element", "known"),
    [
        (lambda t, i, j: t[i, j], False),
        (lambda t, i, j: t[0, j], True),
        (lambda t, i, j: t[j, j], True),
    ],
)
def test_the_beginning_of_a_longer_table_is_not_that_of_every_block(
    element: Any, known: bool
) -> None:
    n = tirx.Var("n", "int64")
    x, table = (tvm.te.placeholder(shape, "float32") for shape in ((n, 64), (64, 64)))
    made = tvm.te.compute((n, 64), lambda i, j: x[i, j] + element(table, i, j))
    axes = read_independent_axes(tvm.te.create_prim_func([x, table, made]))
    assert (axes is not None) == known
    assert axes is None or row_axes(axes).outer == ()


def _of_windows(element: Any) -> Any:
    """Return y[i], the sum of element(x, i, k) over 3 taps k."""
    n = tirx.Var("n", "int64")
    x = tvm.te.placeholder((2 * n + 4,), "float32", "x")
    k = tvm.te.reduce_axis((0, tirx.const(3, "int64")), "k")
    return tvm.te.create_prim_func(
        [x, tvm.te.compute((n,), lambda i: tvm.te.sum(element(x, i, k), k))]
    )


@pytest.mark.parametrize(
    "element",
    [
        lambda x, i, k: x[2 * i + k] * x[i + k],
        lambda x, i, k: x[2 * i + k] * x[k],
        lambda x, i, k: x[2 * i + k] * i.astype("float32"),
        lambda x, i, k: x[2 * i - k + 2],
        lambda x, i, k: x[2 * i + k + 1],
        lambda x, i, k: x[i * k],
    ],
)
def test_windows_that_are_not_those_of_rows(element: Any) -> None:
    known = read_independent_axes(_of_windows(lambda x, i, k: x[2 * i + k]))
    assert known is not None and [(w.stride, w.reach) for w in known.windows.values()] == [(2, 3)]
    assert read_independent_axes(_of_windows(element)) is None


def test_windows_of_what_is_computed_before_are_not_copied() -> None:
    def twice(x: Any, w: Any) -> Any:
        return convolved(convolved(x, w, padding=0), w, padding=0)

    assert read_windowed(function(twice, [(1, M, N, 4), (4, 3, 3, 4)])) is None


@pytest.mark.parametrize(
    ("rows", "value", "known"),
    [
        (4, lambda x, y: x, True),
        (5, lambda x, y: x, False),
        (4, lambda x, y: x + y, False),
    ],
)
def test_what_keeps_elements_of_the_caller_is_not_copied(
    rows: int, value: Any, known: bool
) -> None:
    @T.prim_func(private=True, s_tir=True)
    def func(x: T.Buffer((N, T.int64(4)), "float32"), y: T.Buffer((T.int64(rows), N), "float32")):
        for i, j in T.grid(N, T.int64(4)):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vj, vi] = value(x[vi, vj], y[vj, vi])

    axes = _row_axes(func)
    assert not axes.is_in_one_piece(axes.buffers[1])
    assert axes.can_be_copied(axes.buffers[1]) == known
    assert any(candidates(Work(func, host(1), 1, frozenset()))) == known


@pytest.mark.parametrize(
    ("rule", "shapes"),
    [
        (lambda x: op.sum(x, 0), [(N, 4)]),
        (lambda x: op.nn.softmax(x, 0), [(N, 4)]),
        (lambda x: op.add(op.expand_dims(x, 0), op.expand_dims(x, 1)), [(N, 64)]),
        (lambda x, y: op.matmul(x, y), [(4, N), (N, 4)]),
        (lambda x: op.exp(x), [(4, 4)]),
    ],
)
def test_sizes_that_are_not_those_of_rows(rule: Any, shapes: Any) -> None:
    assert read_independent_axes(function(rule, shapes)) is None


@pytest.mark.parametrize(("columns", "copied"), [((4,), True), ((4, 64), False)])
def test_rows_that_move_apart_have_loops_of_their_own(columns: Any, copied: bool) -> None:
    """A kernel for one element would be slower than TVM's loops: it has several, in a copy."""
    order = [1, 0, *range(2, len(columns) + 1)]
    func = function(lambda x: op.permute_dims(x, order), [(N, *columns)])
    axes = _row_axes(func)
    assert (axes.inner is None, len(axes.outer)) == ((False, 0) if copied else (True, 2))
    assert all(map(axes.is_in_one_piece, axes.buffers)) != copied
    assert next(candidates(Work(func, host(1), 1, frozenset())), None) is not None


@T.prim_func(private=True, s_tir=True)
def updated(x: T.Buffer((3, 4), "float32"), n: T.int64) -> None:
    for i, j in T.grid(3, 4):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = x[vi, vj] + T.cast(n, "float32")


def test_a_number_as_a_parameter_is_no_size() -> None:
    assert read_independent_axes(updated) is None


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
