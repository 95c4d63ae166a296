"""Recurrent layers of ONNX, each direction as one function of all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import relax
from tvm.ir import GenericConst, prim

from ..graph.recurrent import emit_item, emit_layer
from ..graph.rewriting import known_shape


class _Node(NamedTuple):
    """A recurrent operator.

    - `activations`: the defaults.
    - `order`: where the gates of a cell are among those of ONNX. LSTM: input, output, to forget,
      cell; GRU: update, reset, new.
    """

    states: int
    activations: tuple[str, ...]
    order: tuple[int, ...]


NODES = {
    "LSTM": _Node(2, ("Sigmoid", "Tanh", "Tanh"), (0, 2, 3, 1)),
    "GRU": _Node(1, ("Sigmoid", "Tanh"), (1, 0, 2)),
    "RNN": _Node(1, ("Tanh",), (0,)),
}
#: Attributes that are read, or say nothing.
_READ = frozenset(
    {"activations", "direction", "hidden_size", "layout", "linear_before_reset", "tvm_custom"}
)


def emit_node(
    builder: relax.BlockBuilder, kind: str, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Emit a node.

    - `kind`: one of :data:`NODES`.
    - `inputs` (Sequence[relax.Expr or None]): operands of the node, None for one that is left out.
    - Returns: its results.
    - Raises ValueError: the node does more than is supported here.
    """
    emit, node = builder.emit, NODES[kind]
    x, *weights, lengths, first, second, peephole = [*inputs, *[None] * 8][:8]
    rows = bool(attributes.get("layout", 0))

    def ordered(value: Any) -> Any:
        """Return an array with the batch after the first axis."""
        return (
            emit(relax.op.permute_dims(value, [1, 0, 2])) if rows and value is not None else value
        )

    x, states = ordered(x), list(map(ordered, (first, second)[: node.states]))
    steps, batch, _ = known_shape(x) or [None] * 3
    cell = _cell(kind, attributes)
    reason = _reason(kind, attributes, lengths, steps)
    if reason or peephole is not None:
        raise ValueError(f"operator {kind}: {reason or 'a peephole'} is not supported")
    shape = (batch, int((known_shape(weights[1]) or [0])[-1]))
    found = []
    for place, reverse in enumerate(_directions(attributes)):
        zero = relax.op.zeros(shape, str(x.ty.dtype.dtype))
        own = [emit(zero) if each is None else emit_item(builder, each, place) for each in states]
        given = [None if each is None else emit_item(builder, each, place) for each in weights]
        made = _weights(builder, cell, node.order, given, shape[1])
        found.append(emit_layer(builder, cell, x, own, *made, reverse=reverse))
    results = [ordered(each[0]) for each in found]
    after = zip(*(each[1:] for each in found), strict=True)
    stacked = [emit(relax.op.stack(list(each), 1 if rows else 0)) for each in after]
    return relax.Tuple([emit(relax.op.stack(results, 2 if rows else 1)), *stacked])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _directions(attributes: dict[str, Any]) -> list[bool]:
    """Return for each direction whether it begins at the end."""
    direction = _text(attributes.get("direction", "forward"))
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def _cell(kind: str, attributes: dict[str, Any]) -> str:
    if kind == "RNN":
        names = {_text(each).lower() for each in attributes.get("activations", ("Tanh",))}
        return f"rnn {names.pop()}" if len(names) == 1 else ""
    after = kind == "LSTM" or attributes.get("linear_before_reset", 0)
    return kind.lower() if after else "gru of reset state"


def _reason(kind: str, attributes: dict[str, Any], lengths: Any, steps: Any) -> str:
    """Return what a node does that is not supported, "" if there is nothing."""
    for name, value in attributes.items():
        if name not in _READ and value:
            return f"the attribute {name}"
    names = [_text(each).lower() for each in attributes.get("activations", ())]
    known = [each.lower() for each in NODES[kind].activations]
    if kind == "RNN":
        known = ["relu"] if names[:1] == ["relu"] else known
    if names and names != known * len(_directions(attributes)):
        return f"the activations {', '.join(names)}"
    whole = isinstance(lengths, GenericConst) and isinstance(steps, prim.IntImm)
    if lengths is not None and not (whole and (lengths.value.numpy() == int(steps)).all()):
        return "a length for each sequence"
    return ""


def _weights(
    builder: Any, cell: str, order: Sequence[int], given: Sequence[Any], size: int
) -> tuple[Any, list[Any], Any]:
    """Return the weights of the input, those of the cell, and what is added to the input."""
    emit = builder.emit

    def gates(value: Any, begin: int = 0) -> list[Any]:
        places = [(begin + place) * size for place in order]
        return [emit(relax.op.strided_slice(value, [0], [p], [p + size])) for p in places]

    def beside(parts: Sequence[Any]) -> Any:
        return parts[0] if len(parts) == 1 else emit(relax.op.concat(list(parts), 0))

    into, own, bias = given
    dtype = str(own.ty.dtype.dtype)
    count = len(order)
    if bias is None:
        bias = emit(relax.op.zeros((2 * count * size,), dtype))
    outer, inner = gates(bias), gates(bias, count)
    weights = gates(own)
    if cell == "gru":
        return beside(gates(into)), [beside(weights), beside(inner)], beside(outer)
    total = emit(relax.op.add(beside(outer), beside(inner)))
    parts = [beside(weights[:2]), weights[2]] if count == 3 else [beside(weights)]
    return beside(gates(into)), parts, total
