"""Gradients of a streamed convolution: of the definition in float64, and those of autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depthwise import Options, covering
from fuse_epilogue.workloads import depthwise_conv1d_backward
from oracles import compile_together
from streaming import assert_close, canonical, differences, draw, run, sums
from test_workloads_streaming import FLAGS, SIZES, name_of, rng_of
from tiers import tiered

BACKWARD = {
    "n": [1, 2],
    "c": [1, 3],
    "w": [1, 2, 6],
    "f": [2, 4],
    "dilation": [1, 2],
    "dtype": ["float32", "float16", "bfloat16"],
    "bias": FLAGS,
    "activation": [None, "relu", "silu", "gelu"],
    "keep": FLAGS,
    "layout": ["NCW", "NWC"],
    "initial_state": FLAGS,
    "final_state": FLAGS,
    "sequences": FLAGS,
}
GRADIENTS = covering(BACKWARD, lambda options: not options["keep"] or options["activation"])


def backward(options: Options, **more: Any) -> Any:
    arguments = {**options, **more}
    sizes = [arguments.pop(size) for size in SIZES]
    return depthwise_conv1d_backward(*sizes, **arguments)


@pytest.fixture(scope="module")
def gradients() -> dict[str, Any]:
    """The gradients, compiled together."""
    functions = {f"case{i}": backward(options) for i, options in enumerate(GRADIENTS)}
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("index", tiered(GRADIENTS, name_of))
def test_gradients_are_those_of_the_loss(gradients: Any, index: int) -> None:
    """Every gradient against differences of the definition in float64."""
    options = GRADIENTS[index]
    func, rng = backward(options), rng_of(options)
    arrays = draw(func, options, rng)
    inputs = canonical(arrays, options["layout"])
    if options["bias"] and "bias" not in inputs:
        inputs["bias"] = rng.integers(-24, 25, options["c"]) / 8
    # Where a sum is 0, ReLU has no derivative to compare with.
    clear = np.abs(sums(inputs, options["dilation"])[0]) > 0.01
    inputs["dy"] = np.where(clear, inputs["dy"], 0)
    wanted = inputs["dy"].transpose(0, 2, 1) if options["layout"] == "NWC" else inputs["dy"]
    arrays["dy"] = np.ascontiguousarray(wanted).astype(options["dtype"])
    if options["keep"]:
        total = sums(inputs, options["dilation"])[0]
        own = total.transpose(0, 2, 1) if options["layout"] == "NWC" else total
        arrays["sums"] = np.ascontiguousarray(own).astype("float32")
    results = canonical(run(gradients[f"case{index}"], arrays), options["layout"])
    for name in ("x", "weight", "bias", "initial_state"):
        if f"d{name}" in results:
            right = differences(inputs, name, options["activation"], options["dilation"])
            size = np.full_like(right, 100 * np.abs(inputs["dy"]).sum() + 100)
            assert_close(results[f"d{name}"], right, size, options["dtype"], f"d{name} {options}")


# ---- PyTorch -------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("activation", [None, "relu", "silu", "gelu"])
@pytest.mark.parametrize("initial_state", FLAGS)
def test_gradients_are_those_of_autograd(activation: str | None, initial_state: bool) -> None:
    torch = pytest.importorskip("torch", reason="the gradients are compared with its own")
    options = {"n": 2, "c": 5, "w": 37, "f": 4, "activation": activation}
    func = backward({**options, "initial_state": initial_state, "final_state": initial_state})
    arrays = draw(func, options, rng_of(options))
    arrays.setdefault("bias", (np.arange(5) / 8).astype("float32"))
    names = ["x", "weight", "bias", *["initial_state"] * initial_state]
    given = {name: torch.tensor(arrays[name], requires_grad=True) for name in names}
    before = given["initial_state"] if initial_state else torch.zeros(2, 5, 3)
    columns = torch.cat([before, given["x"]], dim=2)
    y = torch.nn.functional.conv1d(columns, given["weight"][:, None], given["bias"], groups=5)
    bent = {None: lambda s: s, "relu": torch.relu, "silu": torch.nn.functional.silu}
    y = bent.get(activation, torch.nn.functional.gelu)(y)
    loss = (y * torch.tensor(arrays["dy"])).sum()
    if initial_state:
        loss = loss + (columns[:, :, -3:] * torch.tensor(arrays["dfinal_state"])).sum()
    loss.backward()
    wanted = [param.name for param in func.params]
    arguments = {name: arrays[name] for name in wanted}
    after = run(compile_together({"main": func})["main"], arguments)
    for name in names:
        right = given[name].grad.numpy()
        bound = 1e-5 * np.abs(right).max()
        np.testing.assert_allclose(after[f"d{name}"], right, rtol=0, atol=bound, err_msg=name)
