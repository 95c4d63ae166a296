"""Elementwise kernels compute what the unscheduled function computes, and write nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from fuse_epilogue.kernels.cpu import elementwise
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.cpu import for_llvm
from kernel_runs import run

Inputs = dict[str, tuple[tuple[int, ...], str]]
SIZES = (1, 2, 3, 7, 17, 129)


def case(name: str, inputs: Inputs, shape: tuple[int, ...], rule: Callable[..., Any]) -> Any:
    return name, (inputs, shape, rule)


def padded(x: Any, n: int) -> Callable[..., Any]:
    def rule(i: Any, j: Any) -> Any:
        inside = tirx.all(i >= 1, i < n + 1, j >= 1, j < n + 1)
        return tirx.if_then_else(inside, x[i - 1, j - 1], tirx.const(-1.0, "float32"))

    return rule


def padded_rows(x: Any, before: int, exponentials: bool) -> Callable[..., Any]:
    n = int(x.shape[1])

    def rule(i: Any, j: Any) -> Any:
        inside = tirx.all(j >= before, j < before + n)
        value = tirx.if_then_else(inside, x[i, j - before], tirx.const(0.0, "float32"))
        return tirx.exp(value) if exponentials else value * 2.0

    return rule


def joined(parts: list[Any], exponentials: bool) -> Callable[..., Any]:
    """Arrays beside each other, as TOPI writes it: the last one that begins before an index."""

    def rule(i: Any, j: Any) -> Any:
        value, begin = parts[0][i, j], int(parts[0].shape[1])
        for part in parts[1:]:
            value = tirx.if_then_else(j - begin >= 0, part[i, j - begin], value)
            begin += int(part.shape[1])
        return tirx.exp(value) if exponentials else value

    return rule


def cases() -> list[Any]:
    found = []
    for n in SIZES:
        m = 2 * n + 1
        f = "float32"
        found += [
            case(
                f"add-{n}",
                {"x": ((m, n), f), "y": ((n,), f)},
                (m, n),
                lambda x, y: lambda i, j: x[i, j] + y[j],
            ),
            case(f"transpose-{n}", {"x": ((m, n), f)}, (n, m), lambda x: lambda i, j: x[j, i]),
            case(
                f"swap-{n}", {"x": ((n, 3, m), f)}, (3, n, m), lambda x: lambda i, j, k: x[j, i, k]
            ),
            case(
                f"rotate-{n}",
                {"x": ((n, 5, m), f)},
                (5, m, n),
                lambda x: lambda i, j, k: x[k, i, j] * 2,
            ),
            case(f"pad-{n}", {"x": ((n, n), f)}, (n + 2, n + 2), lambda x, n=n: padded(x, n)),
            # Borders of a row, and more of them than are written out.
            *(
                case(
                    f"pad-rows-{before}-{after}-{n}{'-exp' * exponentials}",
                    {"x": ((3, n), f)},
                    (3, before + n + after),
                    lambda x, b=before, e=exponentials: padded_rows(x, b, e),
                )
                for before, after in ((3, 0), (0, 2), (16, 1), (20, 20))
                for exponentials in (False, True)
            ),
            # Up to as many parts as have loops of their own, and more.
            *(
                case(
                    f"joined-{count}-{n}{'-exp' * exponentials}",
                    {f"x{place}": ((3, n + place % 3), f) for place in range(count)},
                    (3, sum(n + place % 3 for place in range(count))),
                    lambda e=exponentials, **parts: joined([*parts.values()], e),
                )
                for count in (2, 5, 70)
                for exponentials in (False, True)
                if count < 70 or n == 3
            ),
            case(
                f"take-{n}",
                {"t": ((n,), "int32"), "x": ((9, m), f)},
                (n, m),
                lambda t, x: lambda i, j: x[t[i], j],
            ),
            case(
                f"reversed-{n}",
                {"x": ((m, n), f)},
                (m, n),
                lambda x, n=n: lambda i, j: x[i, n - 1 - j],
            ),
            case(
                f"strided-{n}", {"x": ((m, 2 * n), f)}, (m, n), lambda x: lambda i, j: x[i, 2 * j]
            ),
            case(
                f"reshape-{n}",
                {"x": ((6 * n,), f)},
                (2, 3, n),
                lambda x, n=n: lambda i, j, k: x[(i * 3 + j) * n + k],
            ),
            case(
                f"column-{n}",
                {"x": ((m, 1), f), "y": ((1, n), f)},
                (m, n),
                lambda x, y: lambda i, j: x[i, 0] - y[0, j],
            ),
            case(
                f"divide-{n}",
                {"d": ((n,), "int32"), "x": ((m, n), "int32")},
                (m, n),
                lambda d, x: lambda i, j: tirx.Select(d[j] != 0, tirx.truncdiv(x[i, j], d[j]), 7),
            ),
            case(
                f"cast-{n}",
                {"x": ((m, n), "int8")},
                (m, n),
                lambda x: lambda i, j: x[i, j].astype("int32") * 3,
            ),
        ]
    return found


CASES: dict[str, Any] = dict(cases())


#: In order of their names the six sizes of a program follow each other, and one case in five has
#: every program and, in turn, every size.
QUICK = {name: 1 + number % 2 for number, name in enumerate(sorted(CASES)[::5])}


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        pytest.param(name, threads, marks=() if QUICK.get(name) == threads else pytest.mark.full)
        for name in CASES
        for threads in (1, 2)
    ],
)
@pytest.mark.usefixtures("free_threads")
def test_computes_what_the_unscheduled_function_computes(name: str, threads: int) -> None:
    inputs, shape, rule = CASES[name]
    names = {name: te.placeholder(size, dtype, name) for name, (size, dtype) in inputs.items()}
    out = te.compute(shape, rule(**names), name="out")
    func = te.create_prim_func([*names.values(), out]).with_attr("tirx.noalias", True)
    program = read_program(func)
    assert program is not None
    scheduled = elementwise.schedule(program, host(threads), threads)
    assert scheduled is not None
    rng = np.random.default_rng(len(names) + shape[0])
    arrays = {
        name: rng.integers(0 if name == "t" else -4, 5, size).astype(dtype)
        for name, (size, dtype) in inputs.items()
    }
    dtype = str(program.outputs[0].dtype)
    # What an optimiser makes of the reference does not matter.
    expected = run(func, arrays.values(), shape, dtype, {"kind": "llvm", "opt-level": 0})
    assert np.array_equal(run(scheduled.func, arrays.values(), shape, dtype), expected)


def test_arrays_beside_each_other_are_joined_without_conditions() -> None:
    parts = [te.placeholder((3, size), "float32", f"x{size}") for size in (64, 32, 5, 100)]
    out = te.compute((3, 201), joined(parts, exponentials=False), "y")
    program = read_program(te.create_prim_func([*parts, out]))
    found = elementwise.schedule(program, host(1))
    assert "if_then_else" not in str(found.func)
    # Conditions count for nothing, as there are none: as much as to copy one array.
    one = te.placeholder((3, 201), "float32", "x")
    copy = te.create_prim_func([one, te.compute((3, 201), lambda i, j: one[i, j], "y")])
    alone = elementwise.schedule(read_program(copy), host(1))
    costs = [each.ways[0].parts["computing"] for each in (found, alone)]
    assert costs[0] < 1.5 * costs[1]


def test_a_reduction_is_not_elementwise() -> None:
    x = te.placeholder((4, 5), name="x")
    k = te.reduce_axis((0, 5))
    program = read_program(te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], k))]))
    assert program is not None
    assert elementwise.schedule(program, host(1)) is None


@pytest.mark.parametrize(
    ("rule", "shape", "by_llvm"),
    [
        # Three channels of an image, in either layout, and every second element.
        (lambda x: lambda i, j: x[j, i], (300, 3), True),
        (lambda x: lambda i, j: x[j, i], (3, 300), True),
        (lambda x: lambda i, j: x[i, 2 * j + 1], (33, 40), True),
        (lambda x: lambda i, j: x[j, i], (300, 16), False),
        (lambda x: lambda i, j: x[i, 9 * j], (33, 40), False),
        (lambda x: lambda i, j: te.exp(x[i, 2 * j + 1]), (33, 40), False),
    ],
)
def test_few_neighbours_are_left_to_llvm(
    rule: Callable[..., Any], shape: tuple[int, int], by_llvm: bool
) -> None:
    x = te.placeholder((33, 400) if shape == (33, 40) else shape[::-1], "float32", "x")
    func = te.create_prim_func([x, te.compute(shape, rule(x), "y")])
    found = elementwise.schedule(read_program(func), host(1))
    assert ("T.vectorized" not in str(found.func) and "T.Ramp" not in str(found.func)) == by_llvm
    values = np.random.default_rng(0).standard_normal([int(n) for n in x.shape], "float32")
    arrays = [tvm.runtime.tensor(values) for _ in range(2)]
    results = [tvm.runtime.tensor(np.zeros(shape, "float32")) for _ in range(2)]
    for each, array, result in zip((func, found.func), arrays, results, strict=True):
        built = tvm.compile(for_llvm(each).with_attr("global_symbol", "main"), host(1))
        built["main"](array, result)
    np.testing.assert_allclose(results[0].numpy(), results[1].numpy(), rtol=1e-6)
