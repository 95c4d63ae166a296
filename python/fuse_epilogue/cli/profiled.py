"""``profile``: measures a model, function by function."""

from __future__ import annotations

import argparse
import json

from .._files import write
from . import inputs, model_files, output
from .output import Answer

HELP = "measure each function of a compiled model on this machine"
DESCRIPTION = f"""
Run a model some times and report what each function of it is and takes: kind, fusion, predicted
and measured time, share of the whole. INPUT is {model_files.SAVED},
or what `compile` takes, which is compiled first. Threads: the environment variable TVM_NUM_THREADS.
"""
EXAMPLE = """
  python -m fuse_epilogue profile model.so
  python -m fuse_epilogue profile model.onnx --repeats 31 --html report.html
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_files.add_compiling(parser)
    model_files.add_inputs(parser)
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=model_files.positive,
        default=11,
        help="runs of which the median counts (default: %(default)s)",
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")


def run(given: argparse.Namespace) -> Answer:
    """Measure and report."""
    output.check_file("--html", given.html)
    if given.html and not given.html.endswith((".html", ".htm")):
        raise inputs.InputError(f"--html '{given.html}': a page is HTML, name it .html")
    try:
        model = model_files.loaded(given)
    except model_files.Refused as error:
        return Answer(str(error), {"error": str(error)}, output.REFUSED)
    arrays = model_files.arrays(given, model.signature)
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
