"""``nki``: writes the NKI kernel of a function for AWS Trainium."""

from __future__ import annotations

import argparse

from .._files import write
from ..neuron.machine import MACHINES
from . import inputs, output
from .output import Answer

HELP = "write the NKI kernel of a function for AWS Trainium, with its predicted latency"
DESCRIPTION = """
Plan a function for one NeuronCore, emit its NKI kernel, check it against the limits of the machine
and predict its latency with the model that comes with this package. No Trainium is needed.
"""
EXAMPLE = """
  python -m fuse_epilogue nki conv.json --machine trn2 --out kernel.py
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--machine", choices=list(MACHINES), default="trn1", help="which core (default: trn1)"
    )
    parser.add_argument("--function", metavar="NAME", help="which function, if there are several")
    parser.add_argument("--finite", action="store_true", help="all data and weights are finite")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the kernel there, and not to stdout"
    )


def run(given: argparse.Namespace) -> Answer:
    """Emit the kernel of one function."""
    from .. import neuron, plan, schedules

    output.check_file("--out", given.out)
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    if len(funcs) > 1:
        raise inputs.InputError(f"pick one of {', '.join(funcs)} with --function")
    ((name, func),) = funcs.items()
    try:
        try:
            scheduled = plan(func, given.machine, finite=given.finite).apply(func)
        except ValueError:
            scheduled = schedules.apply(func, given.machine)
        kernel = neuron.emit(scheduled, name=name)
        kernel.check(given.machine)
    except (ValueError, neuron.EmitError, neuron.CheckError) as error:
        return Answer(f"{name}: {error}", {"error": str(error)}, output.REFUSED)
    latency = kernel.predict(given.machine).latency_ms
    data = {"name": name, "machine": given.machine, "predicted_ms": latency}
    output.note(f"{name} on {given.machine}: {latency:.4f} ms predicted")
    if given.out:
        write(given.out, kernel.source)
        return Answer(f"wrote {given.out}", {**data, "out": given.out})
    return Answer(kernel.source, {**data, "source": kernel.source})
