"""Blocks of keys are skipped only where the result is bit for bit that of all blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.kernels.cpu.attention import kernel
from fuse_epilogue.kernels.cpu.attention.hidden_keys import HiddenKeys
from fuse_epilogue.kernels.cpu.attention.tiling import choose, ranges
from test_kernels_attention_masks import kernel_of
from tiers import crossed

op = relax.op
ROWS, SIZE = 300, 8
PLACES = np.arange(ROWS)
BEYOND = PLACES - PLACES[:, None]
#: By name: which keys are shown.
SHOWN = {
    "causal": BEYOND <= 0,
    "window": (BEYOND <= 0) & (BEYOND > -40),
    "window and first keys": (BEYOND <= 0) & ((BEYOND > -40) | (PLACES < 3)),
    # The first queries see no key.
    "no key": BEYOND <= -100,
}
FILLS = (-np.inf, -1e9, float(np.finfo("float32").min), -1e4)


def values(shown: str, fill: float, added: bool) -> np.ndarray:
    """A mask as bools, or as numbers to add."""
    mask = SHOWN[shown][None, None]
    return np.where(mask, 0, fill).astype("float32") if added else mask


def model(
    shown: str, fill: float, added: bool, depth: int = SIZE, given: bool = False
) -> tvm.IRModule:
    """Attention whose mask is chosen by, or added to the scores; it may be an operand."""
    builder = relax.BlockBuilder()
    sizes = {"q": depth, "k": depth, "v": SIZE}
    args = [
        relax.Var(name, relax.TensorType((1, 1, ROWS, size), "float32"))
        for name, size in sizes.items()
    ]
    number = values(shown, fill, added)
    mask = relax.const(number)
    if given:
        mask = relax.Var("mask", relax.TensorType(number.shape, str(number.dtype)))
        args.append(mask)
    emit = builder.emit
    with builder.function("main", args):
        with builder.dataflow():
            q, k, v = args[:3]
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = emit(op.multiply(s, relax.const(0.25)))
            if added:
                s = op.add(s, mask)
            elif shown == "window" and not given:
                s = op.where(relax.const(~number), relax.const(fill, "float32"), s)
            else:
                s = op.where(mask, s, relax.const(fill, "float32"))
            out = builder.emit_output(op.matmul(emit(op.nn.softmax(emit(s))), v))
        builder.emit_func_output(out)
    return builder.get()


def data() -> dict[str, list[np.ndarray]]:
    """Operands by name; those that are large, or not finite, are of hidden keys of some queries."""
    rng = np.random.default_rng(0)
    plain = [rng.standard_normal((1, 1, ROWS, SIZE)).astype("float32") for _ in range(3)]

    def changed(operand: int, place: int, value: float) -> list[np.ndarray]:
        arrays = [each.copy() for each in plain]
        arrays[operand][0, 0, place, 2] = value
        return arrays

    return {
        "plain": plain,
        "scores below the fill": [plain[0] * 3e3, plain[1] * 3e3, plain[2]],
        "a large key": changed(1, 290, 3e38),
        "an infinite key": changed(1, 290, np.inf),
        "an infinite query": changed(0, 7, -np.inf),
        "NaN as a key": changed(1, 10, np.nan),
        "NaN as a value": changed(2, 10, np.nan),
    }


def compare(mod: tvm.IRModule, mask: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Demand that a model computes the same, bit for bit, where no block is skipped."""
    skipping = fuse_epilogue.compile(mod, threads=1)
    assert [each.kind for each in skipping.report.functions] == ["attention"]
    counted: list[Any] = []

    def all_blocks(*given: Any) -> Any:
        counted.append(given)
        zero = tvm.tirx.const(0, "int64")
        return zero, given[4], zero

    monkeypatch.setattr(HiddenKeys, "blocks", all_blocks)
    whole = fuse_epilogue.compile(mod, threads=1)
    assert counted
    for name, arrays in data().items():
        got, expected = (np.asarray(made(*arrays, *mask)) for made in (skipping, whole))
        np.testing.assert_array_equal(got, expected, err_msg=name)


@crossed(shown=tuple(SHOWN), fill=FILLS, added=(False, True))
def test_results_are_those_of_all_blocks(
    shown: str, fill: float, added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(model(shown, fill, added), [], monkeypatch)


@pytest.mark.parametrize(
    ("shown", "fill", "added"),
    [
        ("causal", FILLS[0], True),
        ("window", FILLS[0], False),
        ("window and first keys", FILLS[1], True),
        ("no key", FILLS[2], True),
        ("no key", FILLS[2], False),
    ],
)
def test_masks_that_are_operands_skip_what_they_hide(
    shown: str, fill: float, added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_short_blocks(sizes: Any, needed: Any = None) -> Any:
        return choose(sizes, needed or ranges(sizes, None))

    monkeypatch.setattr(kernel, "choose", of_short_blocks)
    mod = model(shown, fill, added, given=True)
    assert "seen" in kernel_of(mod)
    compare(mod, [values(shown, fill, added)], monkeypatch)


def test_exponents_of_less_than_a_vector_are_not_compared() -> None:
    assert "needed" not in kernel_of(model("causal", -np.inf, added=True, depth=3))
    assert "needed" in kernel_of(model("causal", -np.inf, added=False, depth=3))
