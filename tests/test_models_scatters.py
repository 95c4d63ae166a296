"""Scatters by rows: whole numbers, so equal to numpy's bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import fuse_epilogue
from fuse_epilogue.models.graph.scatters import ScatterRows
from fuse_epilogue.schedules import host

SIZES, COUNT = [3, 5, 4], 7
UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def model(axis: int, reduction: str, shared: bool, less: int = 0) -> tvm.IRModule:
    """Updates of an array; `shared`: whether all that is after the axis has the same places.

    There are `less` updates than data along the other axes.
    """
    shape = [COUNT if at == axis else size - less for at, size in enumerate(SIZES)]
    one = [*shape[: axis + 1], *[1] * (2 - axis)]
    x = relax.Var("x", relax.TensorType(SIZES, "float32"))
    dtype = "int32" if axis == 1 else "int64"
    at = relax.Var("at", relax.TensorType(one if shared else shape, dtype))
    updates = relax.Var("updates", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, at, updates]):
        with builder.dataflow():
            places = builder.emit(relax.op.broadcast_to(at, shape)) if shared else at
            done = relax.op.scatter_elements(x, places, updates, axis, reduction)
            result = builder.emit_output(builder.emit(done))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reduction", ["update", *UFUNCS])
def test_rows_take_their_updates_in_order(axis: int, reduction: str) -> None:
    rng = np.random.default_rng(axis)
    shared = reduction != "max" and axis < 2
    mod = model(axis, reduction, shared, less=reduction in ("max", "min"))
    params = mod["main"].params
    at = rng.integers(-SIZES[axis], SIZES[axis], [int(n) for n in params[1].ty.shape])
    at = at.astype(str(params[1].ty.dtype.dtype))
    x, updates = (
        rng.integers(-3, 4, [int(n) for n in each.ty.shape]).astype("float32")
        for each in (params[0], params[2])
    )
    right = x.copy()
    places = list(np.indices(updates.shape))
    places[axis] = np.broadcast_to(at, updates.shape)
    if reduction == "update":
        right[tuple(places)] = updates
    else:
        UFUNCS[reduction].at(right, tuple(places), updates)
    assert np.array_equal(fuse_epilogue.compile(mod, host(1))(x, at, updates), right)


@pytest.mark.parametrize(("shared", "columns"), [(True, 1), (False, 20)])
def test_one_place_is_read_for_each_row_of_columns_that_share_it(
    shared: bool, columns: int
) -> None:
    mod = ScatterRows()(model(0, "add", shared))
    (rows,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    assert [int(size) for size in rows.params[1].ty.shape] == [1, COUNT, columns]


def test_constant_places_are_found_to_be_shared() -> None:
    mod = model(0, "add", False)
    at = np.broadcast_to(np.arange(COUNT)[:, None, None] % 3, (COUNT, 5, 4))
    mod = ScatterRows()(relax.transform.BindParams("main", {"at": at})(mod))
    (rows,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    assert [int(size) for size in rows.params[1].ty.shape] == [1, COUNT, 1]
