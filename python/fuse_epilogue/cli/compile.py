"""``compile``: compiles a whole model and saves it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..neuron.machine import MACHINES
from . import model_files, output
from .output import Answer

if TYPE_CHECKING:
    from ..models import CompiledModel, NeuronPackage


def run(given: argparse.Namespace) -> Answer:
    """Compile, save and report."""
    on_trainium = given.target in MACHINES
    if on_trainium and given.out and Path(given.out).exists():
        raise output.InputError(f"--out '{given.out}' is there already: name a new folder")
    elif not on_trainium and given.out and Path(given.out).suffix not in (".so", ".fe"):
        raise output.InputError(f"--out '{given.out}': name it .so, or .fe for this package alone")
    output.check_file("--out", given.out)
    try:
        model: CompiledModel | NeuronPackage = (
            model_files.package(given) if on_trainium else model_files.compiled(given)
        )
        if given.out:
            model.save(given.out)
    except (model_files.Refused, RuntimeError) as error:
        return Answer(str(error), {"error": str(error)}, output.REFUSED)
    data = {
        "signature": model_files.signature_data(model.signature),
        "report": json.loads(model.report.to_json()),
        "out": given.out,
    }
    report = model.report.explain() if given.explain else str(model.report)
    lines = [f"{model.signature}", "", report]
    if given.out:
        lines += ["", f"wrote {given.out}"]
    return Answer("\n".join(lines), data)
