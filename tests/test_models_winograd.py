"""Winograd's algorithms in whole models: only where the caller allows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import GenericConst

import fuse_epilogue
from fuse_epilogue import cli, workloads
from fuse_epilogue.cli import output
from fuse_epilogue.models import ModelReport, compiling
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule

CHANNELS = 32
SHAPE = (1, CHANNELS, 24, 24)


def model() -> tvm.IRModule:
    """Convolutions of 3 x 3 and of 5 x 5, the first with bias, residual and ReLU."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return relax.const(rng.standard_normal(shape).astype("float32") / 16)

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = relax.op.nn.conv2d(x, weights(CHANNELS, CHANNELS, 3, 3), padding=1)
            y = relax.op.add(relax.op.add(y, weights(1, CHANNELS, 1, 1)), x)
            y = builder.emit(relax.op.nn.relu(y))
            y = builder.emit(relax.op.nn.conv2d(y, weights(4, CHANNELS, 5, 5), padding=2))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.finalize()


def kinds(report: ModelReport) -> list[str]:
    return [each.kind for each in report.functions if "conv2d" in each.name]


@pytest.mark.full
def test_only_where_the_caller_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mod, x = model(), np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    options: dict[str, Any] = {"target": host(1), "database": tmp_path / "kept"}
    allowed = fuse_epilogue.compile(mod, winograd=True, **options)
    direct = fuse_epilogue.compile(mod, **options)
    assert kinds(allowed.report) == ["Winograd F(4x4, 3x3)", "contraction"]
    assert kinds(direct.report) == ["contraction", "contraction"]
    reasons = [each.why for each in allowed.report.functions if each.why]
    assert reasons == ["computed directly: its filters are not 3 x 3"]
    assert not any(each.why for each in direct.report.functions)
    expected = direct(x)
    difference = np.abs(allowed(x) - expected).max()
    assert 0 < difference <= 1e-5 * np.abs(expected).max()
    # What was chosen for a function is found again for the same permission only.
    for entry in (tmp_path / "kept").glob("*.fe"):
        entry.unlink()
    monkeypatch.setattr("fuse_epilogue.transform.schedule_module.by_prediction", None)
    again = fuse_epilogue.compile(mod, winograd=True, **options)
    assert np.array_equal(again(x), allowed(x))
    assert kinds(fuse_epilogue.compile(mod, **options).report) == ["contraction", "contraction"]


def test_only_the_transformed_weights_are_kept() -> None:
    schedule = ScheduleModule(host(1), threads=1, winograd=True)
    found: list[Any] = []
    relax.analysis.post_order_visit(scheduled(model(), schedule)["main"], found.append)
    sizes = {each.value.numpy().size for each in found if isinstance(each, GenericConst)}
    assert 36 * CHANNELS * CHANNELS in sizes and 9 * CHANNELS * CHANNELS not in sizes


def test_from_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, given = tmp_path / "model.json", []

    def asked(_mod: Any, _target: Any, options: compiling.Options) -> Any:
        given.append(options.winograd)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "compile_imported", asked)
    path.write_text(tvm.ir.save_json(model()))
    for more in ([], ["--winograd"]):
        assert cli.main(["compile", str(path), *more]) == output.INTERRUPTED
    assert given == [False, True]


def test_what_it_is_not_for() -> None:
    with pytest.raises(TypeError, match="winograd must be True or False"):
        ScheduleModule(host(1), winograd=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="winograd is for processors: leave it out for a GPU"):
        fuse_epilogue.compile(model(), "h100", winograd=True)
    with pytest.raises(ValueError, match="winograd is not for models on Trainium: leave it out"):
        fuse_epilogue.compile(model(), "trn2", winograd=True)
    with pytest.raises(ValueError, match="winograd is for models: leave it out for a PrimFunc"):
        fuse_epilogue.compile(workloads.matmul(4, 4, 4), winograd=True)
