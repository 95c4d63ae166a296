"""Layers of recurrent networks: the kernels of one step in a loop over all steps."""

from __future__ import annotations

from dataclasses import replace

from ...recognize.recurrence import Layer
from ..scheduled import Scheduled, Way


def schedule(layer: Layer, step: Scheduled) -> Scheduled:
    """Schedule a layer.

    Parameters
    ----------
    step : Scheduled
        One of its steps, with a schedule.

    Returns
    -------
    Scheduled
        Weights are packed as for a step; no time is predicted for a symbolic number of steps.

    Example
    -------
    >>> layer = Layer("gru", 5, 2, 8)
    >>> schedule(layer, Scheduled(layer.step(), "contraction")).kind
    'steps of contraction'
    """
    steps = layer.steps if isinstance(layer.steps, int) else 0
    seconds = steps * step.predicted_s
    ways = tuple(Way(f"each step: {way.text}", steps * way.seconds) for way in step.ways[:1])
    return replace(
        step,
        func=layer.function(step.func),
        kind=f"steps of {step.kind}",
        predicted_s=seconds,
        ways=ways,
    )
