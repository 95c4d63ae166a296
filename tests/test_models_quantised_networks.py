"""Networks that ONNX Runtime's tools have quantised, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuse_epilogue

onnx = pytest.importorskip("onnx", reason="the models are of ONNX: install onnx")
ort = pytest.importorskip("onnxruntime", reason="it quantises: install onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

from quantised_models import model  # noqa: E402 - needs onnx
from test_models_quantised import float_products, runtime  # noqa: E402

helper = onnx.helper
pytestmark = [pytest.mark.full, pytest.mark.slow]


class Batches:
    """A few inputs to find the scales with."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(7)
        self._left = [{"x": rng.standard_normal(shape).astype("float32")} for _ in range(8)]

    def get_next(self) -> Any:
        return self._left.pop() if self._left else None

    def set_range(self, start_index: int, end_index: int) -> None:
        """All are taken at once."""


def mlp() -> tuple[Any, np.ndarray]:
    """Three dense layers, the way exporters of torch write them."""
    rng = np.random.default_rng(0)
    sizes = (40, 64, 48, 10)
    x = rng.standard_normal((6, sizes[0])).astype("float32")
    constants, nodes, value = {}, [], "x"
    for at, (inner, outer) in enumerate(zip(sizes, sizes[1:], strict=False)):
        constants[f"w{at}"] = rng.standard_normal((outer, inner)).astype("float32") / inner**0.5
        constants[f"b{at}"] = rng.standard_normal(outer).astype("float32")
        inputs = [value, f"w{at}", f"b{at}"]
        nodes.append(helper.make_node("Gemm", inputs, [f"g{at}"], f"gemm{at}", transB=1))
        value = f"g{at}"
        if outer != sizes[-1]:
            nodes.append(helper.make_node("Relu", [value], [f"r{at}"], f"relu{at}"))
            value = f"r{at}"
    return model(nodes, {"x": x}, constants, [value]), x


def cnn() -> tuple[Any, np.ndarray]:
    """Convolutions, a depthwise one, a residual sum, pools and a dense layer."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 3, 24, 24)).astype("float32")
    filters = {"stem": (16, 3, 3, 3), "wide": (16, 16, 3, 3), "deep": (16, 1, 3, 3)}
    constants: dict[str, np.ndarray] = {
        name: (rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype("float32")
        for name, shape in {**filters, "dense": (16, 10)}.items()
    }
    constants |= {f"{name}_b": rng.standard_normal(16).astype("float32") for name in filters}
    constants["dense_b"] = rng.standard_normal(10).astype("float32")

    def conv(value: str, name: str, result: str, **attributes: Any) -> Any:
        inputs = [value, name, f"{name}_b"]
        return helper.make_node("Conv", inputs, [result], name, pads=[1] * 4, **attributes)

    nodes = [
        conv("x", "stem", "c0", strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["r0"], "relu0"),
        helper.make_node("MaxPool", ["r0"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("m", "wide", "c1"),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        conv("r1", "deep", "c2", group=16),
        helper.make_node("Add", ["c2", "m"], ["sum"], "residual"),
        helper.make_node("Relu", ["sum"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "dense", "dense_b"], ["y"], "dense"),
    ]
    return model(nodes, {"x": x}, constants, ["y"]), x


NETWORKS = {"mlp": mlp, "cnn": cnn}


def statically(made: Any, x: np.ndarray, path: Path, **options: Any) -> Any:
    """A network with scales that a few inputs have given."""
    before, after = path / "before.onnx", path / "after.onnx"
    onnx.save(made, before)
    quantization.quantize_static(before, after, Batches(x.shape), **options)
    return onnx.load(after)


def near(made: Any, x: np.ndarray, steps: float) -> None:
    """Compare with ONNX Runtime: a rounding of float32 may change an integer by 1.

    That changes later integers by a few; `steps` is how far results may be off, in parts of 255.
    """
    (expected,) = runtime(made, x=x)
    found = np.asarray(fuse_epilogue.compile(made, threads=1)(x))
    width = np.ptp(expected)
    assert np.abs(found - expected).max() <= steps * width / 255


FORMS = {
    "ends": {"quant_format": quantization.QuantFormat.QDQ},
    "ends by channel": {"quant_format": quantization.QuantFormat.QDQ, "per_channel": True},
    "signed ends": {
        "quant_format": quantization.QuantFormat.QDQ,
        "activation_type": quantization.QuantType.QInt8,
        "per_channel": True,
    },
    "operators": {"quant_format": quantization.QuantFormat.QOperator},
    "operators by channel": {
        "quant_format": quantization.QuantFormat.QOperator,
        "per_channel": True,
    },
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mlp", "ends by channel"),
        ("mlp", "operators"),
        ("cnn", "ends"),
        ("cnn", "signed ends"),
        ("cnn", "operators by channel"),
    ],
)
def test_a_network_with_constant_scales(name: str, form: str, tmp_path: Path) -> None:
    made, x = NETWORKS[name]()
    made = statically(made, x, tmp_path, **FORMS[form])
    near(made, x, 4)
    assert not float_products(made)


@pytest.mark.parametrize(("name", "weights"), [("mlp", "QUInt8"), ("cnn", "QInt8")])
def test_a_network_that_is_quantised_at_each_call(name: str, weights: str, tmp_path: Path) -> None:
    made, x = NETWORKS[name]()
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    onnx.save(made, before)
    kind = getattr(quantization.QuantType, weights)
    quantization.quantize_dynamic(before, after, weight_type=kind)
    dynamic = onnx.load(after)
    assert any("Integer" in node.op_type for node in dynamic.graph.node)
    near(dynamic, x, 4)
    assert not float_products(dynamic)
