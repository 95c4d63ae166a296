"""Transposed convolutions as convolutions of phases: whole numbers, so equal bit for bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models.graph.transposed_convolutions import TransposedConvolutions
from fuse_epilogue.schedules import host
from test_models_compile import relax_model
from tiers import tiered


def expected(
    x: np.ndarray, weight: np.ndarray, stride: int, padding: int, more: int, groups: int
) -> np.ndarray:
    """What the operator means: every input is spread over the taps' results."""
    rank, taps = x.ndim - 2, weight.shape[2:]
    full = [(n - 1) * stride + k + more for n, k in zip(x.shape[2:], taps, strict=True)]
    made = np.zeros((x.shape[0], weight.shape[1] * groups, *full), x.dtype)
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    for group, tap in itertools.product(range(groups), itertools.product(*map(range, taps))):
        own = slice(group * inputs, (group + 1) * inputs)
        term = np.einsum("bi...,io->bo...", x[:, own], weight[(own, slice(None), *tap)])
        places = tuple(
            slice(t, t + (n - 1) * stride + 1, stride)
            for t, n in zip(tap, x.shape[2:], strict=True)
        )
        made[(slice(None), slice(group * outputs, (group + 1) * outputs), *places)] += term
    inner = tuple(slice(padding, size - padding) for size in full)
    return made[(slice(None), slice(None), *inner)]


def model(weight: np.ndarray, shape: tuple[int, ...], **options: Any) -> tvm.IRModule:
    operator = getattr(relax.op.nn, f"conv{weight.ndim - 2}d_transpose")
    return relax_model(
        shape, build=lambda _, x: relax.op.nn.relu(operator(x, relax.const(weight), **options))
    )


NAMES = ("rank", "taps", "stride", "padding", "more", "groups")
PHASES = [
    dict(zip(NAMES, row, strict=True))
    for row in (
        (1, 2, 2, 0, 0, 1),
        (2, 4, 2, 1, 0, 1),
        (3, 4, 2, 1, 0, 1),
        (2, 4, 2, 0, 1, 2),
        (1, 3, 1, 1, 0, 1),
        (2, 3, 1, 1, 0, 1),
        (2, 3, 3, 1, 2, 1),
        # Phases with different numbers of taps.
        (1, 3, 2, 1, 1, 1),
        (2, 3, 2, 1, 1, 1),
        (3, 3, 2, 1, 1, 2),
        (1, 5, 2, 2, 0, 2),
        (2, 5, 2, 2, 0, 2),
        (2, 5, 3, 0, 2, 1),
    )
]


@pytest.mark.parametrize("number", tiered(PHASES, lambda case: "-".join(map(str, case.values()))))
def test_phases(number: int) -> None:
    rank, taps, stride, padding, more, groups = PHASES[number].values()
    rng = np.random.default_rng(taps)
    shape = (2, 4, *(5, 7, 3)[:rank])
    weight = rng.integers(-3, 4, (4, 6, *[taps] * rank)).astype("float32")
    x = rng.integers(-3, 4, shape).astype("float32")
    x.flat[3] = np.inf
    mod = model(weight, shape, strides=stride, padding=padding, output_padding=more, groups=groups)
    with np.errstate(invalid="ignore"):
        right = expected(x, weight, stride, padding, more, groups)
        right = np.where(np.isnan(right), right, np.maximum(right, 0))
    made = fuse_epilogue.compile(mod, host(1))
    finite = np.isfinite(right)
    assert np.array_equal(made(x)[finite], right[finite])
    assert np.isinf(right).sum() and (made(x) == np.inf)[right == np.inf].all()
    assert "_transpose(" not in TransposedConvolutions()(mod).script()


def test_phases_of_each_dimension() -> None:
    rng = np.random.default_rng(1)
    weight = rng.integers(-3, 4, (3, 2, 3, 5)).astype("float32")
    x = rng.integers(-3, 4, (1, 3, 4, 5)).astype("float32")
    mod = model(weight, x.shape, strides=(3, 2))
    right = np.zeros((1, 2, 12, 13), "float32")
    for h, w in itertools.product(range(3), range(5)):
        term = np.einsum("bihw,io->bohw", x, weight[:, :, h, w])
        right[:, :, h : h + 10 : 3, w : w + 9 : 2] += term
    assert np.array_equal(fuse_epilogue.compile(mod, host(1))(x), np.maximum(right, 0))
    assert "_transpose(" not in TransposedConvolutions()(mod).script()


@pytest.mark.parametrize("options", [{"strides": 4}, {"dilation": 2}])
def test_phases_without_taps_are_left_to_tvm(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-3, 4, (4, 2, 3, 3)).astype("float32")
    mod = model(weight, (1, 4, 5, 6), **options)
    assert "conv2d_transpose(" in TransposedConvolutions()(mod).script()
    x = rng.integers(-3, 4, (1, 4, 5, 6)).astype("float32")
    spread = np.zeros((4, 2, 5, 5), "float32") if "dilation" in options else weight
    spread[:, :, :: options.get("dilation", 1), :: options.get("dilation", 1)] = weight
    right = np.maximum(expected(x, spread, options.get("strides", 1), 0, 0, 1), 0)
    assert np.array_equal(fuse_epilogue.compile(mod, host(1))(x), right)


def test_integers_with_one_bound() -> None:
    """torch's importer writes the other bound as infinity, which TVM cannot cast."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5,), "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            low = builder.emit(relax.op.clip(x, -1, float("inf")))
            out = builder.emit_output(relax.op.clip(low, float("-inf"), 2))
        builder.emit_func_output(out)
    made = fuse_epilogue.compile(builder.get(), host(1))
    assert made(np.array([-(2**40), -1, 1, 2, 2**40])).tolist() == [-1, -1, 1, 2, 2]


def test_arrays_of_infinity() -> None:
    def build(_: Any, x: Any) -> Any:
        return relax.op.add(x, relax.op.full((3, 2), relax.const(float("-inf"), "float32")))

    made = fuse_epilogue.compile(relax_model((3, 2), build=build), host(1))
    assert (made(np.zeros((3, 2), "float32")) == -np.inf).all()


def test_phases_of_images_whose_size_has_a_name() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-3, 4, (4, 2, 3, 3)).astype("float32")
    height, width = (tvm.tirx.Var(name, "int64") for name in ("height", "width"))
    mod = model(weight, (1, 4, height, width), strides=2, padding=1, output_padding=1)
    assert "_transpose(" not in TransposedConvolutions()(mod).script()
    made = fuse_epilogue.compile(mod, host(1))
    for shape in ((1, 1), (1, 5), (7, 2), (17, 9)):
        x = rng.integers(-3, 4, (1, 4, *shape)).astype("float32")
        assert np.array_equal(made(x), np.maximum(expected(x, weight, 2, 1, 1, 1), 0))
