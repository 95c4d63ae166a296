"""Models for CUDA: the text of every kernel, executed by the processor; nothing is run on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.ir import GenericConst

import cuda_on_cpu
import fuse_epilogue
from cuda_runs import no_gxx
from fuse_epilogue.models.compiling import processor
from fuse_epilogue.models.pipeline import scheduled
from fuse_epilogue.transform import ScheduleModule, schedules_of
from test_transform_schedule_module import layer


class Interpreter:
    """A scheduled module's "main", each function of it executed from its CUDA text."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod
        self.funcs = {v.name_hint: f for v, f in mod.functions.items() if v.name_hint != "main"}
        self.programs = dict(
            zip(self.funcs, cuda_on_cpu.build_all(list(self.funcs.values())), strict=True)
        )

    def value(self, node: Any, values: dict[Any, np.ndarray]) -> np.ndarray:
        if isinstance(node, GenericConst):
            return node.value.numpy()
        return values[node]

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        main = self.mod["main"]
        values = dict(zip(main.params, inputs, strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self.evaluated(binding.value, values)
        return values[main.body.body]

    def evaluated(self, node: Any, values: dict[Any, np.ndarray]) -> np.ndarray:
        name = getattr(getattr(node, "op", None), "name", "")
        if not name:
            return self.value(node, values)
        if name == "relax.call_tir":
            result = np.zeros([int(n) for n in node.ty.shape], str(node.ty.dtype))
            arguments = [np.array(self.value(each, values)) for each in node.args[1].fields]
            self.programs[node.args[0].name_hint](*arguments, result)
            return result
        assert name in ("relax.reshape", "relax.memory.view"), name
        return self.value(node.args[0], values).reshape([int(n) for n in node.ty.shape])


def target() -> Any:
    return processor("h100")


@no_gxx
@pytest.mark.slow
def test_a_layer_executed_from_its_text() -> None:
    rng = np.random.default_rng(0)
    mod = layer(rng)
    done = scheduled(mod, ScheduleModule(target()))
    kinds = {each.kind for each in schedules_of(done) or ()}
    assert "product" in kinds and any(kind.startswith("dlight ") for kind in kinds)
    x = rng.standard_normal((6, 12)).astype("float32")
    expected = fuse_epilogue.compile(mod, threads=1)(x)
    np.testing.assert_allclose(Interpreter(done)(x), expected, rtol=1e-5, atol=1e-5)


def test_a_model_for_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuse_epilogue.models.compiled.has_gpu", lambda: False)
    model = fuse_epilogue.compile(layer(np.random.default_rng(0)), "h100")
    for each in model.report.functions:
        assert each.kind != "default" and (each.kind == "view" or each.name in model.source)
    assert model.source.count("__global__") >= len(model.report.functions) - 1
    with pytest.raises(RuntimeError, match="compiled for .*cuda.* no such GPU here: save it"):
        model(np.zeros((6, 12), "float32"))
    with pytest.raises(ValueError, match="cannot be timed on this machine"):
        fuse_epilogue.compile(layer(np.random.default_rng(0)), "h100", measure=1.0)


def test_a_model_for_a_processor_has_no_text_of_cuda() -> None:
    model = fuse_epilogue.compile(layer(np.random.default_rng(0)), threads=1)
    assert model.source == ""
