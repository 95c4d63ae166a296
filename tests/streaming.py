"""Streams of columns, written from the definition in numpy: states, sequences, pools, gradients.

Everything is computed in float64 (int64 for int8), on arrays [N, C, W] whatever the layout is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm.tirx import PrimFunc

from depthwise import FLOAT32, Arrays, Options, erf, in_layout
from oracles import garbage, parameters

#: Parameters that have columns, and so a layout.
WITH_COLUMNS = {"x", "y", "z", "residual", "sums", "dy", "dx"}
STATES = {"initial_state", "final_state", "state", "dfinal_state", "dinitial_state"}
HALF_ULP = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def bend(activation: str | None, s: np.ndarray) -> np.ndarray:
    """An activation."""
    if activation == "relu":
        return np.maximum(s, 0)
    if activation == "silu":
        return s * _sigmoid(s)
    if activation == "gelu":
        return s * (1 + erf(s / np.sqrt(2))) / 2
    return s


def history(inputs: Arrays, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """The columns from `reach` before the first one on, and the sequence of each."""
    x = inputs["x"]
    n, c, w = x.shape
    before = inputs.get("initial_state", np.zeros((n, c, reach), x.dtype))
    numbers = inputs.get("sequences", np.zeros((n, w), "int64"))
    first = np.repeat(numbers[:, :1], reach, axis=1)
    return np.concatenate([before, x], axis=2), np.concatenate([first, numbers], axis=1)


def sums(inputs: Arrays, dilation: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The sum over the taps with the bias, and that of the magnitudes."""
    weight = inputs["weight"]
    w, f = inputs["x"].shape[2], weight.shape[1]
    reach = dilation * (f - 1)
    columns, numbers = history(inputs, reach)
    total = np.zeros(inputs["x"].shape, columns.dtype)
    size = np.zeros_like(total)
    for tap in range(f):
        at = slice(tap * dilation, tap * dilation + w)
        same = numbers[:, None, at] == numbers[:, None, reach:]
        term = np.where(same, columns[:, :, at], 0) * weight[:, tap, None]
        total, size = total + term, size + np.abs(term)
    if "bias" in inputs:
        bias = inputs["bias"][:, None]
        total, size = total + bias, size + np.abs(bias)
    return total, size


def finish(total: np.ndarray, inputs: Arrays, activation: str | None) -> np.ndarray:
    """The epilogue of a sum."""
    y = bend(activation, total)
    if "z" in inputs:
        y = y * inputs["z"] * _sigmoid(inputs["z"])
    return y + inputs.get("residual", 0)


def final_state(inputs: Arrays, reach: int, count: int | None) -> np.ndarray:
    """The columns of the last sequence at the end of each image, or of each of `count`."""
    columns, numbers = history(inputs, reach)
    n, c, length = columns.shape
    made = np.zeros((n, count or 1, c, reach), columns.dtype)
    for image in range(n):
        for place in range(count or 1):
            number = numbers[image, -1] if count is None else place
            own = np.flatnonzero(numbers[image, reach:] == number)
            if len(own) == 0:
                continue
            end = reach + own[-1] + 1
            for k in range(reach):
                if numbers[image, end - reach + k] == number:
                    made[image, place, :, k] = columns[image, :, end - reach + k]
    return made[:, 0] if count is None else made


def update(inputs: Arrays, circular: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sums of the next columns, those of the magnitudes, and the states after them."""
    x, weight, state = inputs["x"], inputs["weight"], inputs["state"].copy()
    f, length, steps = weight.shape[1], state.shape[2], x.shape[2]
    total, size = np.zeros_like(x), np.zeros_like(x)
    for request in range(x.shape[0]):
        row = int(inputs["indices"][request]) if "indices" in inputs else request
        start = int(inputs["positions"][request]) if circular else length
        older = [state[row][:, (start - f + 1 + j) % length] for j in range(f - 1)]
        columns = np.concatenate([np.stack(older, axis=1), x[request]], axis=1)
        for column in range(steps):
            terms = columns[:, column : column + f] * weight
            total[request, :, column] = terms.sum(axis=1)
            size[request, :, column] = np.abs(terms).sum(axis=1)
        if circular:
            for k in range(steps):
                state[row][:, (start + k) % length] = x[request, :, k]
        else:
            state[row] = np.concatenate([state[row], x[request]], axis=1)[:, steps:]
    bias = inputs["bias"][:, None] if "bias" in inputs else 0
    return total + bias, size + np.abs(bias), state


def draw(func: PrimFunc, options: Options, rng: np.random.Generator, **sizes: int) -> Arrays:
    """Inputs for the parameters of a function: multiples of 1/8, integers from their range.

    Outputs are garbage. Arrays have the function's own layout.
    """
    made: Arrays = {}
    for param in parameters(func, sizes):
        shape = param.shape
        if param.name in ("y", "final_state", "dx", "dweight", "dbias", "dinitial_state"):
            made[param.name] = garbage(param.dtype, shape)
        elif param.name == "sequences":
            most = options.get("sequences")
            most = 5 if most is True else int(most)
            made[param.name] = np.sort(rng.integers(0, most, shape), axis=1).astype("int32")
        elif param.name == "positions":
            made[param.name] = rng.integers(0, 50, shape).astype("int32")
        elif param.name == "indices":
            states = made["state"].shape[0]
            made[param.name] = rng.permutation(states)[: shape[0]].astype("int32")
        elif param.dtype in ("int8", "int32"):
            made[param.name] = rng.integers(-128, 128, shape).astype(param.dtype)
        else:
            made[param.name] = (rng.integers(-24, 25, shape) / 8).astype(param.dtype)
    return made


def run(built: Any, arrays: Arrays) -> Arrays:
    """Call a compiled function on copies; returns all arrays as they are afterwards."""
    arguments = {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
    built(*arguments.values())
    return {name: tensor.numpy() for name, tensor in arguments.items()}


def canonical(arrays: Arrays, layout: str) -> Arrays:
    """The arrays as [N, C, W], in float64 or int64."""
    made: Arrays = {}
    for name, array in arrays.items():
        wide = "int64" if array.dtype in (np.int8, np.int32) else "float64"
        value = array.astype(wide)
        if name in WITH_COLUMNS | STATES:
            if value.ndim == 2:
                value = value[:, :, None]
            elif value.ndim == 4 and layout == "NWC":
                value = value.transpose(0, 1, 3, 2)
            elif value.ndim == 3:
                value = in_layout(value, layout)
        made[name] = value
    return made


def assert_close(
    actual: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, dtype: str, what: str
) -> None:
    """Every element is within what rounding does: in float32 to its terms, at last to `dtype`.

    On the data of :func:`draw` the sums are exact, so that only activations and casts round.
    """
    off = HALF_ULP[dtype] * np.abs(expected) + 16 * FLOAT32 * (magnitude + np.abs(expected))
    wrong = ~(np.abs(actual - expected) <= off + 1e-7)
    assert not wrong.any(), (
        f"{what}: {wrong.sum()} of {wrong.size} wrong, first {np.argwhere(wrong)[0]}: "
        f"{actual[wrong][0]}, not {expected[wrong][0]}"
    )


def assert_forward(after: Arrays, before: Arrays, options: Options, what: str) -> None:
    """Judge what a forward function has computed."""
    layout, dtype = options.get("layout", "NCW"), options.get("dtype", "float32")
    inputs, results = canonical(before, layout), canonical(after, layout)
    dilation = options.get("dilation", 1)
    total, size = sums(inputs, dilation)
    assert_result(results["y"], total, size, inputs, options, what)
    if "final_state" in results:
        reach = dilation * (inputs["weight"].shape[1] - 1)
        count = options.get("sequences", False)
        count = None if isinstance(count, bool) else count
        expected = final_state(inputs, reach, count)
        np.testing.assert_array_equal(results["final_state"], expected, err_msg=what)


def assert_result(
    y: np.ndarray, total: np.ndarray, size: np.ndarray, inputs: Arrays, options: Options, what: str
) -> None:
    """Judge y, the epilogue of `total`."""
    dtype = options.get("dtype", "float32")
    if dtype == "int8":
        total = np.maximum(total, 0) if options.get("activation") else total
        expected = np.clip(np.floor(total / 128 + 0.5), -128, 127)
        np.testing.assert_array_equal(y, expected, err_msg=what)
        return
    expected = finish(total, inputs, options.get("activation"))
    magnitude = size * (1 + np.abs(inputs.get("z", 0))) + np.abs(inputs.get("residual", 0))
    assert_close(y, expected, magnitude, dtype, what)


def assert_update(after: Arrays, before: Arrays, options: Options, what: str) -> None:
    """Judge what an update has computed."""
    layout = options.get("layout", "NCW")
    inputs, results = canonical(before, layout), canonical(after, layout)
    total, size, state = update(inputs, options.get("circular", False))
    assert_result(results["y"], total, size, inputs, options, what)
    np.testing.assert_array_equal(results["state"], state, err_msg=what)


def loss(inputs: Arrays, activation: str | None, dilation: int) -> float:
    """The sum of y * dy and of final_state * dfinal_state, whose gradient is wanted."""
    total, _ = sums(inputs, dilation)
    value = (bend(activation, total) * inputs["dy"]).sum()
    if "dfinal_state" in inputs:
        reach = inputs["dfinal_state"].shape[2]
        value += (final_state(inputs, reach, None) * inputs["dfinal_state"]).sum()
    return float(value)


def differences(inputs: Arrays, name: str, activation: str | None, dilation: int) -> np.ndarray:
    """The gradient of :func:`loss` by central differences in float64."""
    made = np.zeros_like(inputs[name])
    step = 1e-4
    for at in np.ndindex(made.shape):
        ends = []
        for sign in (1, -1):
            moved = {**inputs, name: inputs[name].copy()}
            moved[name][at] += sign * step
            ends.append(loss(moved, activation, dilation))
        made[at] = (ends[0] - ends[1]) / (2 * step)
    return made
