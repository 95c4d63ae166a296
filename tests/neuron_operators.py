"""Random functions of every operator for Trainium, scheduled at random, and what they compute."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx, topi

from fuse_epilogue import schedules, workloads
from fuse_epilogue.kernels.trainium.gather import find_gather
from fuse_epilogue.neuron import Kernel, emit
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.planner.backends import NEURON_CORE
from fuse_epilogue.planner.problems.request import Request
from test_kernels_attention import drawn as attention_operands
from test_kernels_attention import function as attention_function
from test_kernels_attention import reference as attention_reference

#: Sizes below, at and above what the partitions hold; few, so that a kernel is short.
SIZES = (1, 2, 3, 7, 16, 31, 64, 100, 127, 128, 129, 140)
SMALL = (1, 2, 3, 5, 8)


@dataclass
class Drawn:
    """A function.

    - `label`: sizes and options.
    - `func` (tvm.tirx.PrimFunc): not scheduled.
    - `expected`: in float64.
    - `kind`: kind of the planned problem; "" where a rule schedules it, "gather" for rows of a
      table.
    - `exact`: whether all is computed without rounding.
    """

    operator: str
    label: str
    func: Any
    inputs: list[np.ndarray]
    expected: np.ndarray
    kind: str
    exact: bool


def whole(rng: random.Random, *shape: int) -> np.ndarray:
    """Small integers."""
    own = np.random.default_rng(rng.randrange(2**32))
    return own.integers(-3, 4, shape).astype("float32")


def normal(rng: random.Random, *shape: int) -> np.ndarray:
    """Normal numbers."""
    own = np.random.default_rng(rng.randrange(2**32))
    return own.normal(size=shape).astype("float32")


def _tensors(arrays: list[np.ndarray]) -> list[Any]:
    return [te.placeholder(a.shape, str(a.dtype), f"x{at}") for at, a in enumerate(arrays)]


def _made(arrays: list[np.ndarray], out: Callable[..., Any]) -> Any:
    tensors = _tensors(arrays)
    return te.create_prim_func([*tensors, out(*tensors)])


def _rows(rng: random.Random) -> tuple[int, ...]:
    outer = (rng.choice((2, 3)),) if rng.random() < 0.4 else ()
    return (*outer, rng.choice(SIZES), rng.choice(SIZES[1:]))


def _softmax(rng: random.Random) -> Drawn:
    x = normal(rng, *_rows(rng))
    log = rng.random() < 0.5
    shifted = x.astype("float64") - x.max(-1, keepdims=True)
    total = np.exp(shifted).sum(-1, keepdims=True)
    expected = shifted - np.log(total) if log else np.exp(shifted) / total
    if log:
        x = x.reshape(-1, x.shape[-1])  # topi's takes a matrix
        expected = expected.reshape(x.shape)
    func = _made([x], topi.nn.log_softmax if log else topi.nn.softmax)
    return Drawn("softmax", f"{x.shape} log={log}", func, [x], expected, "row stages", False)


def _norm(rng: random.Random) -> Drawn:
    x = normal(rng, *_rows(rng))
    wide = x.astype("float64")
    last = x.ndim - 1
    scale, shift = normal(rng, x.shape[-1]), normal(rng, x.shape[-1])
    if rng.random() < 0.5:
        inputs = [x, scale, shift]
        func = _made(inputs, lambda a, b, c: topi.nn.layer_norm(a, b, c, [last], 1e-5))
        centred = wide - wide.mean(-1, keepdims=True)
        expected = centred / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale + shift
    else:
        inputs = [x, scale]
        func = _made(inputs, lambda a, b: topi.nn.rms_norm(a, b, [last], 1e-5))
        expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale
    label = f"{x.shape} of {len(inputs)}"
    return Drawn("norm", label, func, inputs, expected, "row stages", False)


def _attention(rng: random.Random) -> Drawn:
    features = rng.choice((8, 24, 64, 128, 129, 160))
    sizes = (1, rng.choice(SIZES), rng.choice(SIZES), rng.choice((1, 2)), features)
    bias = rng.random() < 0.4
    func, inputs = attention_function(*sizes, bias=bias), attention_operands(*sizes, bias)
    expected = attention_reference(*inputs)
    return Drawn("attention", f"{sizes} bias={bias}", func, inputs, expected, "attention", False)


def _conv2d(rng: random.Random) -> Drawn:
    taps, stride = rng.choice((1, 3)), rng.choice((1, 1, 2))
    channels, out = rng.choice((*SMALL, 130)), rng.choice((*SMALL, 130))
    n, h, w = rng.choice((1, 2)), rng.choice((3, 5, 8, 12)), rng.choice((3, 6, 14))
    x, weight, bias = (
        whole(rng, *shape)
        for shape in ((n, channels, h, w), (out, channels, taps, taps), (1, out, 1, 1))
    )
    pad = taps // 2
    func = _made(
        [x, weight, bias],
        lambda a, b, c: topi.nn.relu(topi.add(topi.nn.conv2d(a, b, stride, pad, 1), c)),
    )
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))).astype("float64")
    rows, columns = (h + 2 * pad - taps) // stride + 1, (w + 2 * pad - taps) // stride + 1
    total: Any = bias.astype("float64")
    for i in range(taps):
        for j in range(taps):
            window = padded[:, :, i::stride, j::stride][:, :, :rows, :columns]
            total = total + np.einsum("nchw,oc->nohw", window, weight[:, :, i, j])
    label = f"{x.shape} to {out}, {taps} taps, stride {stride}"
    expected = np.maximum(total, 0)
    return Drawn("conv2d", label, func, [x, weight, bias], expected, "conv2d", True)


def _products(rng: random.Random) -> Drawn:
    b, m, n, k = rng.choice((2, 3)), *(rng.choice(SIZES[s == "k" :]) for s in "mnk")
    left, right = whole(rng, b, m, k), whole(rng, b, n, k)
    func = _made([left, right], topi.nn.batch_matmul)
    expected = left.astype("float64") @ right.transpose(0, 2, 1)
    return Drawn("products", f"{b} x {m}x{n}x{k}", func, [left, right], expected, "products", True)


def _product(rng: random.Random) -> Drawn:
    m, n, k = (rng.choice((*SIZES, 300)) for _ in "mnk")
    transposed = rng.random() < 0.5
    func = workloads.matmul(m, n, k, activation="relu", transpose_b=transposed)
    inputs = [whole(rng, m, k), whole(rng, *((n, k) if transposed else (k, n))), whole(rng, n)]
    a, b, bias = (each.astype("float64") for each in inputs)
    expected = np.maximum(a @ (b.T if transposed else b) + bias, 0)
    label = f"{m}x{n}x{k} transposed={transposed}"
    return Drawn("product", label, func, inputs, expected, "product", True)


def _reduced(rng: random.Random) -> Drawn:
    m, n, op = rng.choice(SIZES), rng.choice((*SIZES[1:], 300)), rng.choice(("sum", "max"))
    func = workloads.row_reduce(m, n, op=op, bias=True, activation="relu")
    inputs = [whole(rng, m, n), whole(rng, m)]
    x, bias = (each.astype("float64") for each in inputs)
    expected = np.maximum((x.sum(1) if op == "sum" else x.max(1)) + bias, 0)
    return Drawn("rows", f"{m}x{n} {op}", func, inputs, expected, "rows", True)


def _conv(rng: random.Random) -> Drawn:
    n, c, taps = rng.choice(SMALL), rng.choice((1, 3, 64, 128, 130, 256)), rng.choice((2, 3, 4))
    columns = rng.choice((5, 16, 33, 64))
    func = workloads.depthwise_conv1d(n, c, columns, taps, padding="causal", activation="relu")
    inputs = [whole(rng, n, c, columns), whole(rng, c, taps), whole(rng, c)]
    x, weight, bias = (each.astype("float64") for each in inputs)
    padded = np.pad(x, ((0, 0), (0, 0), (taps - 1, 0)))
    total: Any = bias[:, None]
    for tap in range(taps):
        total = total + padded[:, :, tap : tap + columns] * weight[:, tap, None]
    label = f"{n}x{c}x{columns}, {taps} taps"
    return Drawn("conv", label, func, inputs, np.maximum(total, 0), "conv", True)


def _moved(rng: random.Random) -> Drawn:
    shape = tuple(rng.choice((2, 3, 32, 64, 128)) for _ in range(rng.choice((2, 3))))
    if rng.random() < 0.6:
        order = list(range(len(shape)))
        while order == sorted(order):
            rng.shuffle(order)
        x = normal(rng, *shape)
        func = _made([x], lambda a: topi.transpose(a, order))
        label = f"{shape} in the order {order}"
        return Drawn("movement", label, func, [x], x.transpose(order), "", True)
    parts = [normal(rng, *shape) for _ in range(2)]
    axis = rng.randrange(len(shape))
    func = _made(parts, lambda a, b: topi.concatenate([a, b], axis))
    label = f"two of {shape} along {axis}"
    return Drawn("movement", label, func, parts, np.concatenate(parts, axis), "", True)


def _elements(rng: random.Random) -> Drawn:
    x, y = (normal(rng, rng.choice(SIZES), rng.choice((*SIZES[1:], 300))) for _ in range(2))
    y = normal(rng, *x.shape)

    def gated(a: Any, b: Any) -> Any:
        return te.compute(
            x.shape, lambda i, j: a[i, j] * tirx.sigmoid(a[i, j]) + b[i, j] * 2.0, "gated"
        )

    wide = x.astype("float64")
    expected = wide / (1 + np.exp(-wide)) + y.astype("float64") * 2
    return Drawn("elementwise", str(x.shape), _made([x, y], gated), [x, y], expected, "", False)


def _embedding(rng: random.Random) -> Drawn:
    table = normal(rng, rng.choice((5, 50)), rng.choice((4, 33, 64)))
    places = np.random.default_rng(rng.randrange(99)).integers(
        0, len(table), rng.choice((1, 7, 130))
    )
    places = places.astype("int32")
    shape = (len(places), table.shape[1])
    func = _made([table, places], lambda a, b: te.compute(shape, lambda i, j: a[b[i], j], "rows"))
    label = f"{table.shape} at {places.shape}"
    return Drawn("embedding", label, func, [table, places], table[places], "gather", True)


#: The operators; those with more to choose come up more often.
OPERATORS: tuple[Callable[[random.Random], Drawn], ...] = (
    *(_softmax, _norm, _attention, _conv2d, _products, _product) * 2,
    *(_reduced, _conv, _moved, _elements, _embedding),
)


def draw(number: int) -> Drawn:
    """Return a function; a number always gives the same one."""
    return OPERATORS[number % len(OPERATORS)](random.Random(number))


def scheduled(drawn: Drawn, number: int) -> tuple[Kernel, str, str]:
    """Return a kernel of a function on a machine, the machine, and how it is scheduled.

    A planned function is scheduled at a random point that has a kernel.
    """
    rng = random.Random(-1 - number)
    machine = rng.choice(tuple(MACHINES))
    if drawn.kind == "gather":
        found = find_gather(drawn.func)
        assert found is not None
        return found.kernel("rows"), machine, "rows of a table"
    if not drawn.kind:
        # Only from trn2 on the tensor engine transposes any data.
        machine = "trn2" if machine == "trn1" else machine
        return emit(schedules.apply(drawn.func, machine)), machine, "by a rule"
    request = Request(drawn.func, MACHINES[machine], True)
    problems = ((kind.name, kind.find(request)) for kind in NEURON_CORE.kinds)
    name, problem = next(((name, it) for name, it in problems if it is not None), ("", None))
    # With one tap or one number to sum over, a function is of another kind, or of none.
    assert name == drawn.kind or any(1 in each.shape for each in drawn.inputs), f"found as {name}"
    if problem is None:
        return emit(schedules.apply(drawn.func, machine)), machine, "by a rule"
    points, _ = problem.space.feasible()
    for _ in range(8):
        point = points.at(rng.randrange(points.size))
        if problem.is_possible(point):
            return problem.kernel(point), machine, problem.space.describe(point)
    raise AssertionError(f"no kernel at eight points: {problem.why_impossible}")
