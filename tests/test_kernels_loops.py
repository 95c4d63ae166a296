"""Statements that all kernels are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import tirx

from fuse_epilogue.kernels.cpu.loops import FlatViews, index, loop, sequence

N = 8


def nest(body: Any) -> Any:
    return loop("i", 0, N, lambda i: loop("j", 0, N, lambda j: body(i, j)))


def test_a_buffer_is_kept_while_it_is_read() -> None:
    """Of two buffers of one size, the second is the first transposed."""
    x, y, a, b = (tirx.decl_buffer((index(N), index(N)), "float32", name) for name in "xyab")
    views = FlatViews()
    allocated = [views.allocate(a), views.allocate(b)]
    first, second, given, result = map(views.of, (a, b, x, y))

    def at(i: Any, j: Any) -> Any:
        return [i * index(N) + j]

    nests = [
        nest(lambda i, j: tirx.BufferStore(first, given[at(i, j)[0]] * 2, at(i, j))),
        nest(lambda i, j: tirx.BufferStore(second, first[at(j, i)[0]], at(i, j))),
        nest(lambda i, j: tirx.BufferStore(result, second[at(i, j)[0]] + 1, at(i, j))),
    ]
    body = sequence([*allocated, *views.declare(sequence(nests))])
    func = tirx.PrimFunc([x, y], body).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": func}), target="llvm")
    values = np.arange(N * N, dtype="float32").reshape(N, N)
    out = tvm.runtime.tensor(np.zeros_like(values))
    built(tvm.runtime.tensor(values), out)
    assert np.array_equal(out.numpy(), values.T * 2 + 1)
