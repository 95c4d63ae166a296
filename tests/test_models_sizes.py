"""Sizes that have names: right for every one, with kernels for those that are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue.models import SavedModelError
from fuse_epilogue.models.sizes import MOST
from fuse_epilogue.schedules import host
from test_models_saved import rewritten

WEIGHT = np.random.default_rng(0).integers(-3, 4, (8, 5)).astype("float32")


def model(*names: str) -> tvm.IRModule:
    """Two layers and a softmax over batches of sentences: ``x`` is [batch, tokens, 8]."""
    sizes = [tvm.tirx.Var(name, "int64") for name in names]
    shape = [*sizes, *[3] * (2 - len(sizes)), 8]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(
                relax.op.nn.relu(builder.emit(relax.op.matmul(x, relax.const(WEIGHT))))
            )
            y = builder.emit(relax.op.matmul(y, relax.const(WEIGHT.T.copy())))
            y = builder.emit(relax.op.permute_dims(relax.op.nn.softmax(y, axis=1), [1, 0, 2]))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def expected(x: np.ndarray) -> np.ndarray:
    y = np.maximum(x @ WEIGHT, 0) @ WEIGHT.T
    e = np.exp(y - y.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).transpose(1, 0, 2)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal((*shape, 8)).astype("float32")


@pytest.fixture(scope="module")
def compiled() -> Any:
    # In another order than that of the alphabet: names and labels are in the caller's.
    return fuse_epilogue.compile(
        model("batch", "tokens"), host(1), sizes={"tokens": 7, "batch": (1, 4)}
    )


@pytest.mark.parametrize("shape", [(1, 7), (4, 7), (2, 7), (1, 1), (4, 129), (17, 3)])
def test_every_size_is_right(compiled: Any, shape: tuple[int, int]) -> None:
    x = drawn(*shape)
    np.testing.assert_allclose(compiled(x), expected(x), rtol=1e-5, atol=1e-6)
    strided = np.repeat(x, 2, axis=0)[::2]  # not contiguous: checked, copied and dispatched
    assert np.array_equal(compiled(strided), compiled(x))


def test_sizes_that_are_chosen_have_kernels(compiled: Any) -> None:
    kinds = {}
    for each in compiled.report.functions:
        kinds.setdefault(each.sizes, set()).add(each.kind)
    assert set(kinds) == {"tokens = 7, batch = 1", "tokens = 7, batch = 4", ""}
    assert "default" not in kinds["tokens = 7, batch = 1"] | kinds["tokens = 7, batch = 4"]
    for shape in ((4, 7), (4, 8)):
        ran = [
            f.sizes for f in compiled.profile(drawn(*shape), repeats=1).functions if f.measured_s
        ]
        assert set(ran) == {"tokens = 7, batch = 4" if shape == (4, 7) else ""}
    assert "tokens = 7, batch = 4" in str(compiled.report)


def test_a_size_that_is_not_named_stays_open() -> None:
    made = fuse_epilogue.compile(model("batch", "tokens"), host(1), sizes={"tokens": 5})
    assert made.sizes == ({"tokens": 5},)
    for shape in ((6, 5), (2, 3)):
        x = drawn(*shape)
        np.testing.assert_allclose(made(x), expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_saved_and_found_in_a_database(tmp_path: Path) -> None:
    steps: list[int] = []
    for _ in range(2):
        made = fuse_epilogue.compile(
            model("n"),
            host(1),
            sizes={"n": 2},
            database=tmp_path / "database",
            on_progress=lambda done, of: steps.append(done),
        )
    count = len(steps)
    assert steps == list(range(1, count + 1))  # the second time nothing is scheduled
    made.save(tmp_path / "model.fe")
    loaded = fuse_epilogue.load(tmp_path / "model.fe")
    assert loaded.sizes == made.sizes == ({"n": 2},)
    for size in (2, 5):
        x = drawn(size, 3)
        assert np.array_equal(loaded(x), made(x))
    assert fuse_epilogue.compile(model("n"), host(1), database=tmp_path / "database").sizes == ()
    for wrong in ([{"m": 2}], [{"n": "2"}], [{"n": 0}], 3):
        other = rewritten(
            tmp_path / "model.fe", tmp_path / "other.fe", lambda m, w=wrong: m.update(sizes=w)
        )
        with pytest.raises(SavedModelError, match="other.fe' is damaged"):
            fuse_epilogue.load(other)
        other.unlink()


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ({"batch": 1}, ValueError, "names 'batch', which .* are n: a torch module"),
        ({"n": ()}, ValueError, "whole numbers from 1"),
        ({"n": (4, 0)}, ValueError, "whole numbers from 1"),
        ({"n": 1.5}, TypeError, "whole numbers from 1"),
        ({"n": "12"}, TypeError, "whole numbers from 1"),
        ({"n": (True,)}, TypeError, "whole numbers from 1"),
        ((1, 2), TypeError, "must be a mapping"),
        ({"n": range(1, MOST + 2)}, ValueError, f"name at most {MOST}"),
    ],
)
def test_sizes_that_are_none(sizes: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        fuse_epilogue.compile(model("n"), host(1), sizes=sizes)


def test_sizes_of_a_model_without_names() -> None:
    with pytest.raises(ValueError, match="'n', which is not .* are none: a torch module"):
        fuse_epilogue.compile(model(), host(1), sizes={"n": 1})
