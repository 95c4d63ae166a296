"""Layers of recurrent networks: the kernels of one step in a loop over all steps."""

from __future__ import annotations

from dataclasses import replace

from ...recognize.recurrence import Layer
from ..scheduled import Scheduled, Way


def schedule(layer: Layer, step: Scheduled) -> Scheduled:
    """Schedule a layer.

    - `step`: one of its steps, with a schedule.
    - Returns: weights are packed as for a step; no time is predicted for a symbolic number of
      steps.
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
