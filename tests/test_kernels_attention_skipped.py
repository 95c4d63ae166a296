"""Blocks of keys are skipped only where the result is bit for bit that of all blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.kernels.cpu.attention.hidden_keys import HiddenKeys
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


def model(shown: str, fill: float, added: bool, depth: int = SIZE) -> tvm.IRModule:
    """Attention whose mask is chosen by, or added to the scores."""
    builder = relax.BlockBuilder()
    sizes = {"q": depth, "k": depth, "v": SIZE}
    args = [
        relax.Var(name, relax.TensorType((1, 1, ROWS, size), "float32"))
        for name, size in sizes.items()
    ]
    emit = builder.emit
    with builder.function("main", args):
        with builder.dataflow():
            q, k, v = args
            s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = emit(op.multiply(s, relax.const(0.25)))
            mask = SHOWN[shown][None, None]
            if added:
                s = op.add(s, relax.const(np.where(mask, 0, fill).astype("float32")))
            elif shown == "window":
                s = op.where(relax.const(~mask), relax.const(fill, "float32"), s)
            else:
                s = op.where(relax.const(mask), s, relax.const(fill, "float32"))
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


@crossed(shown=tuple(SHOWN), fill=FILLS, added=(False, True))
def test_results_are_those_of_all_blocks(
    shown: str, fill: float, added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod = model(shown, fill, added)
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
        got, expected = (np.asarray(made(*arrays)) for made in (skipping, whole))
        np.testing.assert_array_equal(got, expected, err_msg=name)


def test_exponents_of_less_than_a_vector_are_not_compared() -> None:
    assert "needed" not in kernel_of(model("causal", -np.inf, added=True, depth=3))
    assert "needed" in kernel_of(model("causal", -np.inf, added=False, depth=3))
