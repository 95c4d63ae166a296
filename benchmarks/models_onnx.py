"""The residual block of ResNet-18 as a model of ONNX, with the weights of its PyTorch module."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper


def resnet(module: Any, shape: tuple[int, ...], result: tuple[int, ...]) -> ModelProto:
    """The blocks of `models_torch.resnet` as Conv, Relu and Add.

    Parameters
    ----------
    module : torch.nn.Sequential
        Of `Residual`s.
    shape, result : tuple[int, ...]
        Of what goes in and what comes out.
    """
    nodes: list[Any] = []
    weights: list[Any] = []

    def emit(kind: str, inputs: list[str], **attributes: Any) -> str:
        out = f"{kind.lower()}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(value: Any) -> str:
        name = f"weight{len(weights)}"
        array = np.ascontiguousarray(value.detach().numpy())
        weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(layer: Any, x: str) -> str:
        (pad,) = set(layer.padding)
        return emit(
            "Conv",
            [x, constant(layer.weight), constant(layer.bias)],
            kernel_shape=list(layer.kernel_size),
            strides=list(layer.stride),
            pads=[pad] * 4,
        )

    x = "x"
    for block in module:
        y = x
        for layer in block.convs[:-1]:
            y = emit("Relu", [conv(layer, y)])
        skip = conv(block.shortcut, x) if hasattr(block.shortcut, "weight") else x
        x = emit("Relu", [emit("Add", [conv(block.convs[-1], y), skip])])
    graph = helper.make_graph(
        nodes,
        "resnet",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, result)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    checker.check_model(model)
    return model
