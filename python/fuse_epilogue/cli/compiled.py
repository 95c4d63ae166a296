"""``compile``: compiles a whole model and saves it."""

from __future__ import annotations

import argparse
import json

from . import model_files, output
from .output import Answer


def run(given: argparse.Namespace) -> Answer:
    """Compile, save and report."""
    output.check_file("--out", given.out)
    try:
        model = model_files.compiled(given)
        if given.out:
            model.save(given.out)
    except (model_files.Refused, RuntimeError) as error:
        return Answer(str(error), {"error": str(error)}, output.REFUSED)
    data = {
        "signature": model_files.signature_data(model.signature),
        "report": json.loads(model.report.to_json()),
        "out": given.out,
    }
    lines = [f"{model.signature}", "", str(model.report)]
    if given.out:
        lines += ["", f"wrote {given.out}"]
    return Answer("\n".join(lines), data)
