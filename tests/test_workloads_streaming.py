"""States, packed sequences, updates in place and gradients, against numpy's definition of them."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import tvm

from depthwise import Options, covering
from fuse_epilogue.workloads import (
    depthwise_conv1d,
    depthwise_conv1d_backward,
    depthwise_conv1d_update,
)
from fused_block import blocks
from oracles import compile_together
from streaming import (
    assert_forward,
    assert_update,
    canonical,
    draw,
    final_state,
    finish,
    run,
    sums,
)
from tiers import tiered

TYPES = ["float32", "float16", "bfloat16", "int8"]
FLAGS = [False, True]


def rng_of(what: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(str(what).encode()))


def name_of(options: Options) -> str:
    return "-".join(f"{k}{v}" for k, v in options.items())


# ---- Forward -------------------------------------------------------------------------------------

FORWARD = {
    "n": [1, 3],
    "c": [1, 5],
    "w": [1, 2, 3, 7, 40],
    "f": [2, 3, 4, 7],
    "dilation": [1, 2],
    "dtype": TYPES,
    "layout": ["NCW", "NWC"],
    "bias": FLAGS,
    "activation": [None, "relu", "silu", "gelu"],
    "initial_state": FLAGS,
    "final_state": FLAGS,
    "sequences": [False, True, 4],
    "gate": FLAGS,
    "residual": FLAGS,
}


def possible(options: Options) -> bool:
    """int8 has neither SiLU and GELU nor a gate or a residual."""
    if options["dtype"] != "int8":
        return True
    bent = options.get("activation") in ("silu", "gelu")
    return not (bent or options.get("gate") or options.get("residual"))


CASES = covering(FORWARD, possible)
SIZES = ("n", "c", "w", "f")


def forward(options: Options, **more: Any) -> Any:
    arguments = {**options, **more}
    sizes = [arguments.pop(size) for size in SIZES]
    return depthwise_conv1d(*sizes, padding="causal", **arguments)


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    """The forward cases, compiled together."""
    functions = {f"case{i}": forward(options) for i, options in enumerate(CASES)}
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_forward(built: Any, index: int) -> None:
    options = CASES[index]
    arrays = draw(forward(options), options, rng_of(options))
    assert_forward(run(built[f"case{index}"], arrays), arrays, options, name_of(options))


def test_a_stream_in_pieces_is_the_stream() -> None:
    """The final state of a piece is the initial state of the next, pieces below S included."""
    rng = np.random.default_rng(3)
    x = (rng.integers(-24, 25, (2, 3, 40)) / 8).astype("float32")
    weight = (rng.integers(-24, 25, (3, 5)) / 8).astype("float32")
    inputs = {"x": x.astype("float64"), "weight": weight.astype("float64")}
    func = depthwise_conv1d(
        2, 3, "w", 5, padding="causal", bias=False, initial_state=True, final_state=True
    )
    piece = compile_together({"main": func})["main"]
    state, parts = np.zeros((2, 3, 4), "float32"), []
    for start, stop in ((0, 1), (1, 3), (3, 20), (20, 23), (23, 40)):
        y = np.full((2, 3, stop - start), np.nan, "float32")
        part = np.ascontiguousarray(x[:, :, start:stop])
        after = run(
            piece,
            {"x": part, "weight": weight, "before": state, "y": y, "after": state + np.nan},
        )
        state = after["after"]
        parts.append(after["y"])
    np.testing.assert_array_equal(np.concatenate(parts, axis=2), sums(inputs)[0])


def test_blocks_of_all_options() -> None:
    func = depthwise_conv1d(
        2,
        3,
        9,
        4,
        padding="causal",
        dtype="float16",
        activation="gelu",
        initial_state=True,
        final_state=True,
        sequences=3,
        gate=True,
        residual=True,
    )
    names = ["x", "weight", "bias", "initial_state", "sequences", "residual", "z", "y"]
    assert [param.name for param in func.params] == [*names, "final_state"]
    steps = ["check_sequences", "pad", "conv", "bias", "gelu", "gate", "residual", "cast"]
    assert list(blocks(func)) == [*steps, "ends", "final_state"]
    tvm.ir.assert_structural_equal(tvm.script.from_source(func.script()), func)


# ---- Updates -------------------------------------------------------------------------------------

UPDATE = {
    "n": [1, 3],
    "c": [1, 6],
    "f": [2, 3, 4],
    "steps": [1, 2, 5],
    "state_length": [None, 4, 7],
    "circular": FLAGS,
    "pool": [None, 5],
    "dtype": TYPES,
    "bias": FLAGS,
    "activation": [None, "relu", "silu", "gelu"],
    "layout": ["NCW", "NWC"],
    "gate": FLAGS,
    "residual": FLAGS,
}


def possible_update(options: Options) -> bool:
    length = options["state_length"] or options["f"] - 1
    if options["circular"] and options["steps"] > length:
        return False
    return possible(options)


UPDATES = covering(UPDATE, possible_update)


def updating(options: Options, **more: Any) -> Any:
    arguments = {**options, **more}
    sizes = [arguments.pop(size) for size in ("n", "c", "f")]
    return depthwise_conv1d_update(*sizes, **arguments)


@pytest.fixture(scope="module")
def updates() -> dict[str, Any]:
    """The updates, compiled together."""
    functions = {f"case{i}": updating(options) for i, options in enumerate(UPDATES)}
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("index", tiered(UPDATES, name_of))
def test_update(updates: Any, index: int) -> None:
    """Three calls, each from the states that the one before has left."""
    options = UPDATES[index]
    func, rng = updating(options), rng_of(options)
    arrays = draw(func, options, rng)
    for _ in range(3):
        after = run(updates[f"case{index}"], arrays)
        assert_update(after, arrays, options, name_of(options))
        arrays = {**draw(func, options, rng), "state": after["state"]}


def test_symbolic_streams_and_pool() -> None:
    options = {"n": "n", "c": 3, "f": 4, "pool": "p", "circular": True, "state_length": 8}
    func = updating(options)
    run_it = compile_together({"main": func})["main"]
    for n, p in ((1, 1), (3, 9)):
        arrays = draw(func, options, rng_of(n), n=n, p=p)
        assert_update(run(run_it, arrays), arrays, options, f"{n} of {p}")


def test_a_position_near_the_largest() -> None:
    options = {"n": 1, "c": 2, "f": 4, "circular": True, "state_length": 7}
    func = updating(options)
    arrays = draw(func, options, rng_of(1))
    arrays["positions"][:] = 2**31 - 1
    assert_update(run(compile_together({"m": func})["m"], arrays), arrays, options, "position")


# ---- Refusals ------------------------------------------------------------------------------------

GOOD = {"n": 2, "c": 3, "w": 9, "f": 4, "padding": "causal"}


@pytest.mark.parametrize("more", [{"initial_state": True}, {"final_state": True}, {"sequences": 2}])
def test_streams_are_causal_if_nothing_is_said(more: Options) -> None:
    left_out = depthwise_conv1d(2, 3, 9, 4, **more)
    tvm.ir.assert_structural_equal(left_out, depthwise_conv1d(**GOOD, **more))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"initial_state": 1}, "initial_state must be one of False, True: 1"),
        ({"sequences": 0}, "sequences must be an int from 1 to 2147483647: 0"),
        ({"sequences": "no"}, "sequences must be an int from 1 to 2147483647: 'no'"),
        ({"final_state": True, "padding": "same"}, "final_state is for padding = 'causal' only: "),
        ({"sequences": True, "stride": 2}, "sequences is for stride = 1 only: 2"),
        ({"initial_state": True, "f": 1}, "initial_state must be False for f = 1, which has no"),
        ({"gate": True, "dtype": "int8"}, "gate must be False for dtype = 'int8': True"),
        ({"residual": None}, "residual must be one of False, True: None"),
        ({"activation": "gelu", "dtype": "int8"}, "activation must be one of None, 'relu' for"),
    ],
)
def test_arguments_of_the_forward_function(more: Options, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        depthwise_conv1d(**{**GOOD, **more})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"f": 1}, "f must be an int >= 2: 1"),
        ({"steps": 0}, "steps must be an int >= 1: 0"),
        ({"state_length": 2}, "state_length must be an int >= 3: 2"),
        ({"circular": True, "steps": 4}, "steps must be at most state_length = 3 for a circular"),
        ({"pool": 0}, "pool must be an int >= 1, or a str that names a symbolic size: 0"),
        ({"circular": None}, "circular must be one of False, True: None"),
        ({"dtype": "float64"}, "dtype must be one of 'float32', "),
    ],
)
def test_arguments_of_the_update(more: Options, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        depthwise_conv1d_update(**{"n": 2, "c": 3, "f": 4, **more})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dtype": "int8"}, "dtype must be one of 'float32', 'float16', 'bfloat16': 'int8'"),
        ({"keep": True}, "keep must be False for activation = None, which needs no sum: True"),
        ({"sequences": 3}, "sequences must be one of False, True: 3"),
        ({"f": 1, "final_state": True}, "final_state must be False for f = 1, which has no state"),
    ],
)
def test_arguments_of_the_gradients(more: Options, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        depthwise_conv1d_backward(**{"n": 2, "c": 3, "w": 9, "f": 4, **more})


def test_sequences_are_checked_in_the_call() -> None:
    for sequences, wrong in ((True, [[0, 0, 2, 1]]), (2, [[0, 0, 1, 2]]), (2, [[-1, 0, 0, 1]])):
        options = {"n": 1, "c": 2, "w": 4, "f": 3, "sequences": sequences}
        func = forward(options)
        compiled = tvm.compile(func, target="llvm")["main"]
        arrays = draw(func, options, rng_of(1))
        assert_forward(run(compiled, arrays), arrays, options, "sequences")
        arrays["sequences"] = np.array(wrong, "int32")
        with pytest.raises(ValueError, match=r"^sequences must not decrease"):
            run(compiled, arrays)


def test_positions_and_indices_are_checked_in_the_call() -> None:
    options = {"n": 2, "c": 3, "f": 4, "circular": True, "pool": 5}
    func = updating(options)
    compiled = tvm.compile(func, target="llvm")["main"]
    arrays = draw(func, options, rng_of(1))
    assert_update(run(compiled, arrays), arrays, options, "checked")
    for name, wrong, said in (
        ("positions", [0, -1], "positions must not be negative"),
        ("indices", [0, 5], "indices must be states of the pool: each from 0 to 5 - 1"),
        ("indices", [-1, 0], "indices must be states of the pool"),
        ("indices", [3, 3], "indices must differ"),
    ):
        arguments = {k: tvm.runtime.tensor(v) for k, v in arrays.items()}
        arguments[name] = tvm.runtime.tensor(np.array(wrong, "int32"))
        with pytest.raises(ValueError, match=f"^{said}"):
            compiled(*arguments.values())
        np.testing.assert_array_equal(arguments["state"].numpy(), arrays["state"])


def test_a_state_of_the_wrong_length_is_refused_in_the_call() -> None:
    for func, name in (
        (forward({"n": 1, "c": 2, "w": 4, "f": 3, "initial_state": True}), "initial_state"),
        (updating({"n": 1, "c": 2, "f": 3}), "state"),
    ):
        arrays = draw(func, {}, rng_of(1))
        arrays[name] = np.zeros((1, 2, 3), "float32")
        with pytest.raises(ValueError, match=name):
            run(tvm.compile(func, target="llvm")["main"], arrays)


# ---- The grid of causal-conv1d's tests -----------------------------------------------------------

#: Its tolerances, relative and absolute.
TOLERANCE = {"float32": (3e-4, 1e-3), "float16": (3e-3, 5e-3), "bfloat16": (1e-2, 5e-2)}
LENGTHS = [1, 2, 8, 16, 32, 64, 128, 129, 130, 151, 256, 372, 512, 784, 1024, 1134, 2048, 4096]


@pytest.mark.full
@pytest.mark.parametrize("states", ["no", "states", "sequences"])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("width", [2, 3, 4])
def test_the_grid_of_causal_conv1d(width: int, dtype: str, states: str) -> None:
    """Dimension 64 and 4096 + 32, both layouts: one function serves all lengths."""
    for c, layout in ((64, "NCW"), (64, "NWC"), (4096 + 32, "NCW"), (4096 + 32, "NWC")):
        options = {
            "n": 2 if c == 64 else 1,
            "c": c,
            "f": width,
            "dtype": dtype,
            "layout": layout,
            "activation": "silu",
            "initial_state": states == "states",
            "final_state": states == "states",
            "sequences": states == "sequences",
        }
        func = forward(options, w="w")
        built = compile_together({"main": func})["main"]
        for w in LENGTHS if c == 64 else (1, 151, 1134):
            arrays = draw(func, options, rng_of((options, w)), w=w)
            after = canonical(run(built, arrays), layout)
            inputs = canonical(arrays, layout)
            expected = finish(sums(inputs)[0], inputs, "silu")
            relative, absolute = TOLERANCE[dtype]
            np.testing.assert_allclose(after["y"], expected, rtol=relative, atol=absolute)
            if states == "states":
                right = final_state(inputs, width - 1, None)
                np.testing.assert_array_equal(after["final_state"], right)
