"""Indices that are outside of their arrays: a compiled model raises before it reads or writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import ir, relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import fuse_epilogue
from fuse_epilogue.models.graph.index_checks import CheckIndices
from fuse_epilogue.schedules import host

ROWS, COLUMNS = 10, 4
X = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)


def built(rule: Callable[..., Any], *inputs: tuple[list[Any], str]) -> ir.IRModule:
    """A model that returns what `rule` makes of a builder and its inputs, "a", "b" and so on."""
    params = [
        relax.Var(chr(ord("a") + at), relax.TensorType(shape, dtype))
        for at, (shape, dtype) in enumerate(inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            results = builder.emit_output(builder.emit(rule(builder.emit, *params)))
        builder.emit_func_output(results)
    return builder.get()


def _counted(emit: Any, index: Any, size: int) -> Any:
    """An index as ONNX has it: below zero it counts from the end."""
    zero, count = (relax.const(each, index.ty.dtype.dtype) for each in (0, size))
    added = emit(op.add(index, count))
    return emit(op.where(emit(op.less(index, zero)), added, index))


def _all(emit: Any, x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
    rows = emit(op.reshape(_counted(emit, b, ROWS), [6]))
    found = [
        op.take(x, a, axis=0),
        op.take(x, rows, axis=0),
        op.gather_elements(x, c, axis=1),
        op.scatter_elements(x, d, emit(op.gather_elements(x, c, axis=1)), axis=1),
        op.gather_nd(x, e),
        op.scatter_nd(x, f, relax.const(np.ones(3, "float32"))),
        op.index_put(x, relax.Tuple([g, g]), relax.const(np.ones(2, "float32"))),
    ]
    return relax.Tuple([emit(each) for each in found])


GIVEN = [
    X,
    np.array([0, 9], "int64"),
    np.array([[0, -10, 9], [1, 2, 3]], "int32"),
    np.full((ROWS, 2), 3, "int32"),
    np.array([[0, -4]] * ROWS, "int32"),
    np.array([[9, 3], [0, 0]], "int64"),
    np.array([[9, 3], [0, 0], [1, 2]], "int32"),
    np.array([3, -4], "int64"),
]
#: By operator: the input with its indices, where one of them is, and the range that it must be in.
OPERATORS: dict[str, tuple[int, tuple[int, ...], int, int]] = {
    "take": (1, (1,), 0, 9),
    "take, from the end": (2, (1, 2), -10, 9),
    "gather_elements": (3, (9, 1), 0, 3),
    "scatter_elements": (4, (9, 0), -4, 3),
    "gather_nd": (5, (1, 0), 0, 9),
    "gather_nd, second axis": (5, (1, 1), 0, 3),
    "scatter_nd": (6, (2, 0), 0, 9),
    "scatter_nd, second axis": (6, (2, 1), 0, 3),
    "index_put": (7, (0,), -4, 3),
}


@pytest.fixture(scope="module")
def model() -> Any:
    inputs = [(list(each.shape), str(each.dtype)) for each in GIVEN]
    return fuse_epilogue.compile(built(_all, *inputs), host(1))


def test_indices_inside_are_read_and_written_at(model: Any) -> None:
    x, a, b, c, d, e, f, g = GIVEN
    columns = np.arange(ROWS)[:, None]
    scattered, written, put = X.copy(), X.copy(), X.copy()
    scattered[columns, d] = X[columns, c]
    written[tuple(f.T)] = put[g, g] = 1
    right = [x[a], x[b.ravel()], x[columns, c], scattered, x[tuple(e.T)], written, put]
    for found, expected in zip(model(*GIVEN), right, strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_index_outside_is_an_error_that_names_it(model: Any, name: str) -> None:
    place, at, low, high = OPERATORS[name]
    for index in (high + 1, low - 1):
        given = [each.copy() for each in GIVEN]
        given[place][at] = index
        with pytest.raises(IndexError) as raised:
            model(*given)
        assert str(raised.value) == (
            f"{name.split(',')[0]}: index {index} at {list(at)} of input "
            f"'{chr(ord('a') + place)}' is out of range: allowed are {low} to {high}"
        )


def test_a_saved_model_checks_with_this_package_and_without(tmp_path: Path) -> None:
    mod = built(lambda _, x, i: op.take(x, i, axis=0), ([ROWS, 4], "float32"), ([2], "int64"))
    fuse_epilogue.compile(mod, host(1)).save(tmp_path / "model.so")
    wrong = np.array([1, 10])
    with pytest.raises(IndexError, match=r"index 10 at \[1\] of input 'b' .*: allowed are 0 to 9"):
        fuse_epilogue.load(tmp_path / "model.so")(X, wrong)
    alone = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "model.so")), tvm.cpu())
    with pytest.raises(IndexError, match="take: an index of input 'b' is out of range"):
        alone["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(wrong))


def test_lengths_that_differ_from_call_to_call_bound_indices() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")

    def rule(emit: Any, x: Any, i: Any) -> Any:
        second = emit(op.take(x, relax.const(1, "int64"), axis=0))
        return relax.Tuple([emit(op.take(x, i, axis=0)), second])

    model = fuse_epilogue.compile(built(rule, ([n, 4], "float32"), ([m], "int64")), host(1))
    for rows in (2, 7):
        inside = np.array([rows - 1, 0, 1])
        assert np.array_equal(model(X[:rows].copy(), inside)[0], X[inside])
        for wrong in (rows, -1):
            text = rf"take: index {wrong} at \[0\] of input 'b' .* 0 to {rows - 1}$"
            with pytest.raises(IndexError, match=text):
                model(X[:rows].copy(), np.array([wrong]))
    with pytest.raises(IndexError, match=r"take: index 1 of a constant .*: allowed are 0 to 0$"):
        model(X[:1].copy(), np.array([0]))


def _number(value: int) -> Any:
    return relax.const(value, "int64")


#: Indices that are inside for certain for arrays of one size, and not for those of one less.
CERTAIN: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "places of a sort": (lambda _, x: op.argsort(x, 1), 4),
    "places in order": (lambda emit, x: emit(op.topk(x, 2, 1, "both"))[1], 4),
    "numbers in order": (lambda _, x: op.arange(0, 7, 1, "int64"), 7),
    "clipped": (lambda _, x: op.clip(x, 0, 5), 6),
    "at least and at most": (
        lambda emit, x: op.minimum(emit(op.maximum(x, _number(0))), _number(4)),
        5,
    ),
    "remainders": (lambda _, x: op.floor_mod(x, _number(3)), 3),
    "truth values": (lambda emit, x: op.astype(emit(op.less(x, _number(0))), "int64"), 2),
    "a table of constants": (
        lambda emit, x: op.take(
            relax.const(np.array([2, 0, 1, 0])), emit(op.argsort(x, 1)), axis=0
        ),
        3,
    ),
    "from the end": (lambda emit, x: _counted(emit, emit(op.clip(x, -8, 7)), 8), 8),
    "sums and views": (
        lambda emit, x: op.reshape(
            emit(op.add(emit(op.multiply(emit(op.clip(x, 0, 1)), _number(3))), _number(2))), [-1]
        ),
        6,
    ),
    "one of two": (
        lambda emit, x: op.where(emit(op.less(x, _number(0))), _number(1), _number(4)),
        5,
    ),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_indices_that_are_inside_for_certain_are_not_checked(name: str) -> None:
    rule, size = CERTAIN[name]
    checks = []
    for rows in (size, size - 1):
        mod = built(
            lambda emit, table, x: op.take(table, emit(rule(emit, x)), axis=0),
            ([rows, 4], "float32"),
            ([3, 4], "int64"),
        )
        found = CheckIndices()(relax.transform.CanonicalizeBindings()(mod))
        checks.append(sum(isinstance(func, tirx.PrimFunc) for func in found.functions.values()))
    assert checks == [0, 1]


def test_an_index_that_may_wrap_in_a_narrow_type_is_checked() -> None:
    def rule(emit: Any, table: Any, x: Any) -> Any:
        small = emit(op.clip(x, 0, 100))
        return op.take(table, emit(op.add(small, small)), axis=0)

    mod = built(rule, ([201, 4], "float32"), ([3], "int8"))
    assert len(CheckIndices()(mod).functions) == 2


def test_an_index_that_is_clipped_as_a_float_is_checked() -> None:
    """A NaN stays one, and is no index."""

    def rule(emit: Any, table: Any, x: Any) -> Any:
        return op.take(table, emit(op.astype(emit(op.clip(x, 0, 3)), "int64")), axis=0)

    mod = built(rule, ([ROWS, 4], "float32"), ([3], "float32"))
    assert len(CheckIndices()(mod).functions) == 2


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_place_of_the_largest_of_equal_ones_is_the_first(name: str, dtype: str) -> None:
    """Also where none is above the smallest number: TVM's search begins there, at place -1."""

    def rule(emit: Any, table: Any, x: Any) -> Any:
        return op.take(table, emit(getattr(op, name)(x, 1)), axis=0)

    table = ([ROWS, COLUMNS], "float32")
    model = fuse_epilogue.compile(built(rule, table, ([3, COLUMNS], dtype)), host(1))
    lowest = -np.inf if dtype == "float32" else np.iinfo(dtype).min
    for end in (lowest, -(lowest + 1)):
        x = np.array([[1, 3, 2, 3], [end] * 4, [1, 0, 2, end]], dtype)
        assert np.array_equal(model(X, x), X[getattr(x, name)(1)])


def test_indices_for_two_arrays_of_a_size_are_checked_once() -> None:
    def rule(emit: Any, x: Any, y: Any, i: Any) -> Any:
        return op.add(emit(op.take(x, i, axis=0)), emit(op.take(y, i, axis=0)))

    floats = ([ROWS, 4], "float32")
    assert len(CheckIndices()(built(rule, floats, floats, ([3], "int64"))).functions) == 2
    less = ([ROWS - 1, 4], "float32")
    assert len(CheckIndices()(built(rule, floats, less, ([3], "int64"))).functions) == 3


@I.ir_module
class _Branches:
    @R.function
    def main(
        x: R.Tensor((10, 4), "float32"), i: R.Tensor((2,), "int64"), which: R.Tensor((), "bool")
    ) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            j = R.add(i, i)
            R.output(j)
        if which:
            y = R.take(x, j, axis=0)
        else:
            y = R.zeros(R.shape([2, 4]), "float32")
        with R.dataflow():
            z = R.add(y, R.astype(R.expand_dims(j, 1), "float32"))
            R.output(z)
        return z


def test_only_the_branch_that_runs_is_checked() -> None:
    model = fuse_epilogue.compile(_Branches, host(1))
    wrong = np.array([1, 5])
    assert np.array_equal(model(X, wrong, np.array(False)), [[2] * 4, [10] * 4])
    assert np.array_equal(model(X, wrong - 1, np.array(True))[1], X[8] + 8)
    with pytest.raises(IndexError, match=r"take: index 10 at \[1\] of a value computed from input"):
        model(X, wrong, np.array(True))


def test_an_index_that_is_computed_outlives_its_check() -> None:
    def rule(emit: Any, x: Any, i: Any) -> Any:
        places = emit(op.cumsum(i))
        others = emit(op.cumsum(places))
        rows = emit(op.take(x, places, axis=0))
        again = emit(op.cumsum(others))
        return relax.Tuple([rows, again, emit(op.take(rows, places, axis=0))])

    model = fuse_epilogue.compile(built(rule, ([ROWS, 4], "float32"), ([4], "int64")), host(1))
    i = np.array([0, 1, 1, 0])
    places = i.cumsum()
    rows, again, last = model(X, i)
    assert np.array_equal(rows, X[places])
    assert np.array_equal(again, places.cumsum().cumsum())
    assert np.array_equal(last, X[places][places])
    with pytest.raises(IndexError, match=r"index 4 at \[2\] of a value computed from input 'b'"):
        model(X, i + [0, 1, 1, 0])


@pytest.mark.full
def test_torch_checks_each_dimension() -> None:
    torch = pytest.importorskip("torch", reason="the model is of torch: install torch")

    class Model(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any, i: Any, j: Any) -> Any:
            return x[i, j], torch.index_put(x, (i, j), x[0, :2]), torch.embedding(x, i % 10)

    x, i, j = torch.tensor(X), torch.tensor([1, 2]), torch.tensor([0, -1])
    rows, columns = torch.export.Dim("rows"), torch.export.Dim("columns", min=4)
    for shapes in (None, {"x": {0: rows, 1: columns}, "i": None, "j": None}):
        model = fuse_epilogue.compile(
            Model().eval(), host(1), example_inputs=(x, i, j), dynamic_shapes=shapes
        )
        for found, right in zip(model(x, i, j), Model()(x, i, j), strict=True):
            assert torch.equal(found, right)
        for name, size, given in (
            ("i", 10, lambda wrong: (i.clone().fill_(wrong), j)),
            ("j", 4, lambda wrong: (i, j.clone().fill_(wrong))),
        ):
            for wrong in (size, -size - 1):
                text = rf"index {wrong} at \[0\] of input '{name}' .* {-size} to {size - 1}$"
                with pytest.raises(IndexError, match=text):
                    model(x, *given(wrong))
