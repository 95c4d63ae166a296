"""What times kernels: arrays elsewhere in memory, and shares of a turn."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tvm

from fuse_epilogue import workloads
from fuse_epilogue.planner.measurement.measure import arguments, places, shares


def addresses(tensors):
    return [np.from_dlpack(tensor).ctypes.data for tensor in tensors]


def test_arrays_are_copied_to_lines_of_their_own():
    made = arguments(workloads.matmul(16, 32, 8))
    first, *others = places(made, 9)
    assert first == made
    lines = set()
    for copies in others:
        assert all(address % 64 == 0 for address in addresses(copies))
        lines.add(tuple(address % 4096 for address in addresses(copies)))
    # Eight draws of 4 lines out of 64 each.
    assert len(lines) == 8


def test_large_arrays_are_copied_less_often(monkeypatch):
    made = arguments(workloads.matmul(16, 32, 8))
    size = sum(tensor.numpy().nbytes for tensor in made)
    for room, count in ((size - 1, 1), (2 * size, 3), (100 * size, 9)):
        monkeypatch.setattr("fuse_epilogue.planner.measurement.measure._COPIES", room)
        assert len(places(made, 9)) == count


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_copies_hold_what_was_there_and_their_memory(dtype):
    made = arguments(workloads.matmul(16, 32, 8, dtype=dtype))
    _, _, _, copies = places(made, 4)
    gc.collect()
    others = [tvm.runtime.tensor(np.full(20_000, 99, "uint8")) for _ in range(64)]
    for tensor, copy in zip(made, copies, strict=True):
        assert (copy.shape, copy.dtype) == (tensor.shape, tensor.dtype)
        np.testing.assert_array_equal(copy.numpy(), tensor.numpy())
    compiled = tvm.compile(workloads.matmul(16, 32, 8, dtype=dtype), target="llvm")
    compiled(*copies)
    compiled(*made)
    np.testing.assert_array_equal(copies[-1].numpy(), made[-1].numpy())
    copies[0].copyfrom(np.zeros_like(copies[0].numpy()))
    assert np.any(made[0].numpy() != 0)
    assert len(others) == 64


def test_shares_forget_the_clock_and_a_lucky_moment():
    clock = np.array([1.0, 1.7, 0.6, 2.2, 1.1])
    turns = {"a": 3.0 * clock, "b": 4.0 * clock, "c": 5.0 * clock}
    turns["c"] = np.where(np.arange(5) == 2, 0.1, turns["c"])
    found = shares(turns)
    assert found["a"] / found["b"] == pytest.approx(3 / 4)
    assert min(found, key=found.__getitem__) == "a" and found["c"] > found["b"]
