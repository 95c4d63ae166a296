"""``compile``: compiles a whole model and saves it."""

from __future__ import annotations

import argparse
import json

from . import model_files, output
from .output import Answer

HELP = "compile a whole model for a processor, and save it to one file"
DESCRIPTION = """
Compile a model, every function of it with its epilogue and a schedule, and save it. INPUT is an
ONNX model, or a module of Relax whose function "main" is the model. Prints what each function has
become. The file is read by `run`, `profile` and fuse_epilogue.load; one that ends in .so is a
shared library for TVM's runtime as well.
"""
EXAMPLE = """
  python -m fuse_epilogue compile model.onnx -o model.so
  python -m fuse_epilogue compile model.onnx --size batch=1 --threads 2 -o model.so
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_files.add_compiling(parser)
    parser.add_argument("-o", "--out", metavar="FILE", help="save the model there: .so or .fe")


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
