"""Statements that compute elements of results of a function on streams, for any machine."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ...recognize.stages import analyzer_of
from ...recognize.stream_elements import Element
from ...recognize.stream_update import Update
from ...tir.build import sequence


def stored(element: Element) -> Any:
    """Return the statements that compute and store an element, for variables of its own."""
    own = element.at({})
    binds, value = own.computed(analyzer_of(own.axes))
    store = tirx.BufferStore(own.buffer, value, list(own.indices))
    return sequence([*binds, store])


def updated_channel(update: Update) -> Any:
    """Return the statements for one channel of a stream: all loads of its state, then its stores.

    - Returns: in the variables of the update's axes.
    """
    analyzer = analyzer_of(update.axes)
    results: list[Any] = []
    columns: list[Any] = []
    stores: list[Any] = []
    for element in update.elements:
        binds, value = element.computed(analyzer)
        results += binds
        indices = [analyzer.simplify(index) for index in element.indices]
        if not update.is_of_state(element):
            results.append(tirx.BufferStore(element.buffer, value, indices))
            continue
        # As bits: TVM turns a bfloat16 into a float32 wherever it is bound.
        dtype = str(element.buffer.dtype)
        bits = f"uint{element.buffer.dtype.bits}" if dtype == "bfloat16" else dtype
        var = tirx.Var("column", bits)
        columns.append(tirx.Bind(var, value if bits == dtype else tirx.reinterpret(bits, value)))
        back = var if bits == dtype else tirx.reinterpret(dtype, var)
        stores.append(tirx.BufferStore(element.buffer, back, indices))
    return tirx.SeqStmt([*results, *columns, *stores])
