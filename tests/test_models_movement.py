"""Data movement as whole models have it: operators x odd sizes x types, beside NumPy.

Every output lies between two zones that must stay as they were. The functions of one size and type
are compiled together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from fuse_epilogue.models.pipeline import function_passes, graph_passes
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule, schedules_of
from tiers import crossed

SIZES = (1, 2, 3, 7, 17, 129)
DTYPES = ("float32", "int32", "int8", "float64")
#: Elements before and after an output, and their value.
ZONE, UNTOUCHED = 64, 99

#: Operators whose second input has indices, below n.
INDEXED = ("take", "take_last", "gather")

Case = tuple[list[tuple[tuple[int, ...], str]], Callable[..., Any], Callable[..., Any]]


def cases(n: int, dtype: str) -> dict[str, Case]:
    """By name: the inputs, the operator in Relax and in NumPy."""
    m = 2 * n + 1
    x, y, at = ((m, n), dtype), ((m, 3), dtype), ((5,), "int32")
    op = relax.op
    return {
        "take": ([x, at], lambda x, i: op.take(x, i, axis=0), lambda x, i: x[i]),
        "take_last": (
            [((n, m), dtype), at],
            lambda x, i: op.take(x, i, axis=1),
            lambda x, i: x[:, i],
        ),
        "gather": (
            [x, ((m, 4), "int64")],
            lambda x, i: op.gather_elements(x, i, axis=1),
            lambda x, i: np.take_along_axis(x, i, 1),
        ),
        "cumsum": ([x], lambda x: op.cumsum(x, axis=1), lambda x: np.cumsum(x, 1, dtype=x.dtype)),
        "cumsum_first": (
            [x],
            lambda x: op.cumsum(x, axis=0),
            lambda x: np.cumsum(x, 0, dtype=x.dtype),
        ),
        "slice": (
            [x],
            lambda x: op.strided_slice(x, [0, 1], [1, 0], [m, n], [2, 1]),
            lambda x: x[1::2],
        ),
        "concat": ([x, y, x], lambda *e: op.concat(e, axis=1), lambda *e: np.concatenate(e, 1)),
        "concat_first": ([x, x], lambda *e: op.concat(e, axis=0), lambda *e: np.concatenate(e, 0)),
        "pad": (
            [x],
            lambda x: op.nn.pad(x, [1, 2, 3, 0], pad_value=4.0),
            lambda x: np.pad(x, ((1, 2), (3, 0)), constant_values=4),
        ),
        "flip": ([x], lambda x: op.flip(x, axis=1), lambda x: x[:, ::-1]),
        "tile": ([x], lambda x: op.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3))),
        "repeat": ([x], lambda x: op.repeat(x, 3, axis=1), lambda x: np.repeat(x, 3, 1)),
        "where": (
            [x, x],
            lambda x, y: op.where(op.greater(x, y), x, y),
            lambda x, y: np.where(x > y, x, y),
        ),
        "transpose": ([x], lambda x: op.permute_dims(x), lambda x: x.T),
        "split": (
            [((m, 2 * n), dtype)],
            lambda x: op.add(*(op.split(x, 2, axis=1)[i] for i in (0, 1))),
            lambda x: x[:, :n] + x[:, n:],
        ),
        "concat_of_slices": (  # rotates the halves of a row
            [((m, 2 * n), dtype)],
            lambda x: op.concat(
                [op.strided_slice(x, [1], [n], [2 * n]), op.strided_slice(x, [1], [0], [n])], 1
            ),
            lambda x: np.roll(x, n, 1),
        ),
        "upper": ([x], lambda x: op.triu(x, 1), lambda x: np.triu(x, 1)),
    }


def lowered(inputs: list[tuple[tuple[int, ...], str]], build: Callable[..., Any]) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(*each)) for i, each in enumerate(inputs)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(build(*params)))
        builder.emit_func_output(out)
    with host(1):
        passes = [*graph_passes(), *function_passes()]
        return tvm.transform.Sequential(passes)(builder.get())


@crossed(n=SIZES, dtype=DTYPES)
def test_movement(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    functions: dict[str, Any] = {}
    known = cases(n, dtype)
    for name, (inputs, build, _) in known.items():
        mod = lowered(inputs, build)
        found = [func for func in mod.functions.values() if isinstance(func, tvm.tirx.PrimFunc)]
        assert len(found) == 1, name
        functions[name] = found[0].with_attr("global_symbol", name)
    done = ScheduleModule(host(1))(tvm.IRModule(functions))
    kinds = {each.name: each.kind for each in schedules_of(done) or ()}
    assert {name for name, kind in kinds.items() if kind == "default"} <= {"cumsum", "cumsum_first"}
    built = tvm.compile(done, host(1))
    for name in functions:
        inputs, _, reference = known[name]
        arrays = [
            rng.integers(0, n if name in INDEXED and place else 5, shape).astype(kind)
            for place, (shape, kind) in enumerate(inputs)
        ]
        expected = reference(*arrays)
        size = math.prod(expected.shape)
        memory = tvm.runtime.tensor(np.full(ZONE + size + ZONE, UNTOUCHED, str(expected.dtype)))
        around = np.from_dlpack(memory)
        inside = tvm.runtime.from_dlpack(around[ZONE : ZONE + size])
        out = inside._create_view(expected.shape)
        built[name](*map(tvm.runtime.tensor, arrays), out)
        before, result, after = np.split(memory.numpy(), [ZONE, ZONE + size])
        assert np.array_equal(result.reshape(expected.shape), expected), name
        assert (before == UNTOUCHED).all() and (after == UNTOUCHED).all(), name
