"""Compiles a model for Trainium: the pieces of its functions, their calls, and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import ir

from ...neuron.machine import Machine
from ...tir.walk import handle, stored_to
from ..report import FunctionReport, ModelReport
from ..signature import ArrayType, signature_of
from .functions import Piece, pieces
from .graph import Graph, Step, graph_of
from .package import NeuronPackage


def package_of(
    mod: ir.IRModule,
    core: Machine,
    *,
    finite: bool = False,
    round_shares: bool = False,
    on_progress: Callable[[int, int], Any] | None = None,
) -> NeuronPackage:
    """Compile a Relax module that is a model for Trainium.

    - `mod`: as :func:`.importing.import_model` returns it.
    - `finite`: whether all inputs, weights and intermediates are finite.
    - `round_shares`: whether attention may round its shares to the type of the values.
    - `on_progress`: called with how many functions are done, and how many there are.
    - Raises ImportRefusal: as :func:`.neuron.graph.graph_of`.
    """
    graph = graph_of(mod)
    used = dict.fromkeys(step.function for step in graph.steps if step.function)
    parts: dict[str, list[Piece]] = {}
    for number, name in enumerate(used):
        func = graph.functions[name]
        parts[name] = pieces(name, func, core, finite=finite, round_shares=round_shares)
        if on_progress is not None:
            on_progress(number + 1, len(used))
    parts = _with_own_names(parts)
    graph = _with_pieces(graph, parts)
    kernels = {p.name: p.kernel for own in parts.values() for p in own if p.kernel is not None}
    report = _report(graph, [p for own in parts.values() for p in own], core)
    return NeuronPackage(signature_of(mod), report, core.name, graph, kernels)


def _with_own_names(parts: Mapping[str, Sequence[Piece]]) -> dict[str, list[Piece]]:
    """Return pieces with names that differ, whatever was cut off from the names of functions."""
    taken: set[str] = set()
    found: dict[str, list[Piece]] = {}
    for function, own in parts.items():
        found[function] = []
        for piece in own:
            name, number = piece.name, 1
            while name in taken:
                number += 1
                name = f"{piece.name}_v{number}"
            taken.add(name)
            found[function].append(replace(piece, name=name))
    return found


def _with_pieces(graph: Graph, parts: Mapping[str, Sequence[Piece]]) -> Graph:
    """Return a graph whose steps call pieces."""
    arrays = dict(graph.arrays)
    steps: list[Step] = []
    for step in graph.steps:
        if not step.function:
            steps.append(step)
            continue
        if len(parts[step.function]) == 1:
            steps.append(replace(step, function=parts[step.function][0].name))
            continue
        params = graph.functions[step.function].params
        names = dict(zip(map(handle, params), (*step.inputs, *step.outputs), strict=True))
        for piece in parts[step.function]:
            for param in piece.func.params:
                if handle(param) not in names:
                    name = f"u{sum(each.startswith('u') for each in arrays)}"
                    shape = tuple(int(size) for size in param.ty.shape)
                    arrays[name] = ArrayType(name, shape, str(param.ty.dtype))
                    names[handle(param)] = name
            own = [names[handle(param)] for param in piece.func.params]
            count = len(own) - _results(piece)
            steps.append(Step(piece.name, tuple(own[:count]), tuple(own[count:])))
    host = {p.name: p.func for own in parts.values() for p in own if p.kernel is None}
    return replace(graph, arrays=arrays, steps=tuple(steps), functions=host)


def _results(piece: Piece) -> int:
    """Return how many of a function's parameters are results."""
    stored = stored_to(piece.func.body)
    return sum(handle(param) in stored for param in piece.func.params)


def _report(graph: Graph, parts: Sequence[Piece], core: Machine) -> ModelReport:
    functions = []
    for piece in parts:
        calls = sum(step.function == piece.name for step in graph.steps)
        own = FunctionReport(piece.name, piece.kind, piece.fusion, calls, 0.0, why=piece.why)
        if piece.kernel is None:
            own = replace(own, why=f"not on Trainium: {piece.why}")
        else:
            predicted = piece.kernel.predict(core)
            least, most = (calls * ms / 1e3 for ms in predicted.range_ms)
            seconds = calls * predicted.latency_ms / 1e3
            own = replace(own, predicted_s=seconds, least_s=least, most_s=most)
        functions.append(own)
    return ModelReport(tuple(functions), core.name)
