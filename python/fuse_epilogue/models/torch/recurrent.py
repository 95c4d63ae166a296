"""Recurrent layers of torch, each as one function of all steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tvm import relax

from ..graph.recurrent import emit_both, emit_item, emit_layer

aten = torch.ops.aten
#: By the operator: the cell, and the number of its gates.
_CELLS = {
    aten.lstm.input: ("lstm", 4),
    aten.gru.input: ("gru", 3),
    aten.rnn_tanh.input: ("rnn tanh", 1),
    aten.rnn_relu.input: ("rnn relu", 1),
}
_TYPES = (torch.float32, torch.float64)


def recurrent_decompositions(known: Any) -> dict[Any, Callable[..., Any]]:
    """Return decompositions that leave recurrent layers as they are where one function is made.

    - `known` (Mapping): the decompositions of the others, into all operators of every step.
    """
    return {op: partial(_unless_supported, known[op]) for op in _CELLS if op in known}


def _unless_supported(decomposition: Callable[..., Any], *args: Any) -> Any:
    x, states, *_ = args
    states = states if isinstance(states, list | tuple) else [states]
    sizes = {each.shape[2] for each in states}
    same = {each.dtype for each in (x, *states)}
    supported = len(sizes) == 1 and len(same) == 1 and same <= set(_TYPES) and x.dim() == 3
    return NotImplemented if supported else decomposition(*args)


def recurrent_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return converters by the names of the operators."""
    return {op.__name__: partial(_layers, *each) for op, each in _CELLS.items()}


def _layers(cell: str, gates: int, node: Any, importer: Any) -> Any:
    """Emit the layers of an operator, with those in both directions beside each other."""
    x, given, params, has_bias, count, _dropout, train, both, batch_first = node.args
    if train and _dropout:
        raise ValueError("dropout between recurrent layers in training is not supported")
    builder, env = importer.block_builder, importer.env
    emit = builder.emit
    states = [env[each] for each in (given if isinstance(given, list | tuple) else [given])]
    weights = [env[each] for each in params]
    directions, own = 2 if both else 1, 4 if has_bias else 2
    y = env[x]
    y = emit(relax.op.permute_dims(y, [1, 0, 2])) if batch_first else y
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(count):

        def one(direction: int, y: Any = y, layer: int = layer) -> list[Any]:
            place = layer * directions + direction
            first = [emit_item(builder, each, place) for each in states]
            mine = weights[place * own : (place + 1) * own]
            return _direction(builder, cell, gates, y, first, mine, direction == 1)

        y, *after = emit_both(builder, [partial(one, n) for n in range(directions)])
        for kept, each in zip(last, after, strict=True):
            kept += each
    y = emit(relax.op.permute_dims(y, [1, 0, 2])) if batch_first else y
    return relax.Tuple([y, *(emit(relax.op.stack(each, 0)) for each in last)])


def _direction(
    builder: Any,
    cell: str,
    gates: int,
    x: Any,
    first: Sequence[Any],
    weights: Sequence[Any],
    reverse: bool,
) -> list[Any]:
    into, own, *biases = weights
    size = int(own.ty.shape[1])
    bias, inner = biases or (None, None)
    if cell != "gru":
        bias = None if bias is None else builder.emit(relax.op.add(bias, inner))
        return emit_layer(builder, cell, x, first, into, [own], bias, reverse=reverse)
    if inner is None:
        inner = builder.emit(relax.op.zeros((gates * size,), str(x.ty.dtype.dtype)))
    return emit_layer(builder, cell, x, first, into, [own, inner], bias, reverse=reverse)
