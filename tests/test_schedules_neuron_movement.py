"""Functions that only move elements on Trainium: every element in its place, in long pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi

from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.kernels.trainium.read_movement import find_moves
from fuse_epilogue.neuron import emit
from fuse_epilogue.schedules.neuron import Movement
from neuron_rules import kernel_by
from tiers import enough

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "int32": np.int32}


def tensor(*shape: int, dtype: str = "float32", name: str = "x") -> Any:
    return te.placeholder(shape, dtype, name)


def case(inputs: list[Any], outputs: Any, expected: Callable[..., Any]) -> tuple[Any, Any, Any]:
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return te.create_prim_func([*inputs, *outputs]), inputs, expected


def heads() -> Any:
    x = tensor(64, 128)
    out = topi.transpose(topi.reshape(x, (64, 4, 32)), (1, 0, 2))
    return case([x], out, lambda x: x.reshape(64, 4, 32).transpose(1, 0, 2))


def keys() -> Any:
    x = tensor(65, 96, dtype="bfloat16")
    out = topi.transpose(topi.reshape(x, (65, 3, 32)), (1, 2, 0))
    return case([x], out, lambda x: x.reshape(65, 3, 32).transpose(1, 2, 0))


def joined_heads() -> Any:
    x = tensor(4, 9, 32)
    out = topi.reshape(topi.transpose(x, (1, 0, 2)), (9, 128))
    return case([x], out, lambda x: x.transpose(1, 0, 2).reshape(9, 128))


def split() -> Any:
    x = tensor(7, 40)
    return case([x], list(topi.split(x, [3, 19], 1)), lambda x: tuple(np.split(x, [3, 19], 1)))


def stacked() -> Any:
    parts = [tensor(16, name=f"x{number}") for number in range(5)]
    out = topi.reshape(topi.concatenate(parts, 0), (5, 16))
    return case(parts, out, lambda *parts: np.stack(parts))


def backwards() -> Any:
    x = tensor(64, 128, dtype="int32")
    out = topi.strided_slice(x, [63, 1], [-70, 100], [-2, 3])
    return case([x], out, lambda x: x[63::-2, 1:100:3])


def ragged() -> Any:
    x = tensor(300, 700)
    return case([x], topi.transpose(x), lambda x: x.T)


def repeated() -> Any:
    x = tensor(6, 50)
    return case([x], topi.repeat(x, 3, 0), lambda x: np.repeat(x, 3, 0))


def tiled() -> Any:
    x = tensor(6, 50)
    return case([x], topi.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3)))


def rolled() -> Any:
    x, y = tensor(4, 10), tensor(4, 6, name="y")
    halves = topi.concatenate([topi.strided_slice(x, [0, 5], [4, 10], [1, 1]), y], 1)
    return case([x, y], halves, lambda x, y: np.concatenate([x[:, 5:], y], 1))


CASES = [heads, keys, joined_heads, split, stacked, backwards, ragged, repeated, tiled, rolled]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_every_element_is_in_its_place(make: Callable[[], Any]) -> None:
    func, inputs, expected = make()
    arrays = []
    for each in inputs:
        shape = [int(size) for size in each.shape]
        array = np.arange(np.prod(shape)).reshape(shape).astype(DTYPES[str(each.dtype)])
        if array.dtype.kind != "i":
            array.flat[0], array.flat[-1] = -0.0, np.inf
        arrays.append(array)
    wanted = expected(*arrays)
    for finite in (False, True):
        for machine in ("trn1", "trn2"):
            got = kernel_by(Movement(finite), func, machine, (machine,))(*arrays)
            for one, other in zip(
                got if isinstance(got, tuple) else (got,),
                wanted if isinstance(wanted, tuple) else (wanted,),
                strict=True,
            ):
                assert one.tobytes() == np.ascontiguousarray(other).tobytes()


def test_what_would_go_element_by_element_is_transposed() -> None:
    func, _, _ = keys()
    assert "tensor engine" in Movement().choose(func, "trn2").form
    kernel = emit(Movement().choose(func, "trn2").schedule)
    assert kernel.check("trn2").engines["tensor"] >= 3
    # On trn1 it must be asked for, and what is done instead says that it is slow.
    choice = Movement().choose(func, "trn1")
    assert "pieces of 2 bytes one by one" in choice.why
    assert "Movement(finite=True)" in choice.why
    transposed = Movement(finite=True).choose(func, "trn1")
    assert not transposed.why
    assert emit(transposed.schedule).predict("trn1").latency_ms < (
        emit(choice.schedule).predict("trn1").latency_ms
    )


def test_rows_are_one_transfer_for_each_part() -> None:
    for make, transfers in ((heads, 1), (split, 3), (stacked, 5), (repeated, 1), (rolled, 2)):
        kernel = emit(Movement().choose(make()[0], "trn2").schedule)
        assert kernel.check("trn2").instructions == {"dma_copy": transfers}


def test_patterns_are_joined() -> None:
    (pattern,) = find_moves(heads()[0])
    assert [(dim.count, dim.out, dim.source) for dim in pattern.dims] == [
        (4, 2048, 32),
        (64, 32, 128),
        (32, 1, 1),
    ]
    assert (pattern.run, pattern.elements) == (32, 8192)


def refusals() -> list[tuple[Any, str]]:
    x, i = tensor(8, 8), tensor(8, dtype="int32", name="i")
    doubled = te.compute((8, 8), lambda a, b: x[b, a] * 2)
    taken = te.compute((8, 8), lambda a, b: x[i[a], b])
    padded = topi.nn.pad(x, [1, 1], [1, 1])
    cast = topi.cast(x, "bfloat16")
    summed = topi.sum(x, 1)
    wide = te.placeholder((8, 8), "int64", "x")
    return [
        (te.create_prim_func([x, doubled]), "computes something"),
        (te.create_prim_func([x, i, taken]), "known only when the kernel runs"),
        (te.create_prim_func([x, padded]), "computes something"),
        (te.create_prim_func([x, cast]), "computes something"),
        (te.create_prim_func([x, summed]), "that each move"),
        (te.create_prim_func([wide, topi.transpose(wide)]), "no tensors of int64"),
    ]


@pytest.mark.parametrize("number", range(6))
def test_refused(number: int) -> None:
    func, why = refusals()[number]
    choice = Movement().choose(func, "trn2")
    assert choice.schedule is None
    assert why in choice.why


def test_a_trace_replays() -> None:
    for make in (keys, split):
        func, _, _ = make()
        sch = Movement().apply(func, "trn2")
        assert sch is not None
        again = s_tir.Schedule(func)
        s_tir.schedule.Trace.apply_json_to_schedule(stored(sch), again)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_the_rule_is_found() -> None:
    func, _, _ = joined_heads()
    assert emit(schedules.apply(func, "trn2")).check("trn2").engines == {"dma": 1}
    assert "Movement: transfers within HBM" in schedules.explain(func, "trn2")


def permutations() -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Shapes, orders of axes and shapes of results, all that a random number draws."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(40):
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 16, 130], rng.integers(2, 5)))
        order = tuple(int(n) for n in rng.permutation(len(shape)))
        sizes = [shape[axis] for axis in order]
        joined = (sizes[0] * sizes[1], *sizes[2:])
        found.append((shape, order, tuple(joined)))
    return found


QUICK = enough([{"rank": len(shape), "last": order[-1]} for shape, order, _ in permutations()])


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if quick else pytest.mark.full)
        for number, quick in enumerate(QUICK)
    ],
)
def test_permutations_and_reshapes(number: int) -> None:
    shape, order, joined = permutations()[number]
    x = tensor(*shape)
    func = te.create_prim_func([x, topi.reshape(topi.transpose(x, order), joined)])
    kernel = kernel_by(Movement(), func, checked=("trn2",))
    data = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    np.testing.assert_array_equal(kernel(data), data.transpose(order).reshape(joined))
