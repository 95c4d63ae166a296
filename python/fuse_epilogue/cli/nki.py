"""``nki``: writes the NKI kernel of a function for AWS Trainium."""

from __future__ import annotations

import argparse

from .._files import write
from . import inputs, output
from .output import Answer


def run(given: argparse.Namespace) -> Answer:
    """Emit the kernel of one function."""
    from .. import neuron, schedules
    from ..neuron.timeline import Unit
    from ..planner import plan

    output.check_file("--out", given.out)
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    if len(funcs) > 1:
        raise output.InputError(f"pick one of {', '.join(funcs)} with --function")
    ((name, func),) = funcs.items()
    try:
        try:
            permitted = {"finite": given.finite, "round_shares": given.round_shares}
            scheduled = plan(func, given.machine, **permitted).apply(func)
        except ValueError:
            scheduled = schedules.apply(func, given.machine)
        kernel = neuron.emit(scheduled, name=name)
        kernel.check(given.machine)
    except (ValueError, neuron.EmitError, neuron.CheckError) as error:
        return Answer(f"{name}: {error}", {"error": str(error)}, output.REFUSED)
    predicted = kernel.predict(given.machine)
    latency, (least, most) = predicted.latency_ms, predicted.range_ms
    data = {
        "name": name,
        "machine": given.machine,
        "predicted_ms": latency,
        "predicted_range_ms": [least, most],
    }
    unit = Unit.of(latency)
    output.note(
        f"{name} on {given.machine}: {unit.text(latency)} {unit.name} predicted, "
        f"{unit.text(least)} to {unit.text(most)} {unit.name} by what the documents leave open"
    )
    if given.out:
        write(given.out, kernel.source)
        return Answer(f"wrote {given.out}", {**data, "out": given.out})
    return Answer(kernel.source, {**data, "source": kernel.source})
