"""``profile``: measures a model, function by function."""

from __future__ import annotations

import argparse
import json

from .._files import write
from . import model_files, output
from .output import Answer


def run(given: argparse.Namespace) -> Answer:
    """Measure and report."""
    output.check_file("--html", given.html)
    if given.html and not given.html.endswith((".html", ".htm")):
        raise output.InputError(f"--html '{given.html}': a page is HTML, name it .html")
    try:
        model = model_files.loaded(given)
    except model_files.Refused as error:
        return Answer(str(error), {"error": str(error)}, output.REFUSED)
    arrays = model_files.arrays(given, model.signature)
    with model_files.named_indices():
        report = model.profile(*arrays, repeats=given.repeats)
    if given.html:
        write(given.html, report.to_html())
    total = f"{report.total_s * 1e3:,.3f} ms in functions, median of {given.repeats} runs"
    data = {
        "signature": model_files.signature_data(model.signature),
        "report": json.loads(report.to_json()),
        "total_s": report.total_s,
    }
    return Answer(f"{report}\n\n{total}", data)
