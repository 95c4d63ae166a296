"""``make fuzz-modules N=1000``: judge random Relax modules, and write down the counts."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from generated.command import finish, parser_of, timed
from generated.report import conditions
from generated.state import ROOT, Run

from .chunk import module_of, oracle_if_any, run_chunk
from .oracle import PYTHON_VARIABLE, Oracle, Unavailable
from .spec import Module
from .tally import Tally
from .verdict import WRONG, judge

FOLDER = ROOT / "build" / "fuzz-modules"
CHUNK = 25


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = parser_of("generated_modules", __doc__, 1_000, FOLDER, "modules")
    parser.add_argument(
        "--oracle", metavar="PYTHON", help="the Python that has onnxruntime, if it is not this one"
    )
    parser.add_argument("--no-oracle", action="store_true", help="compare with NumPy alone")
    args = parser.parse_args()
    # A process that has threads must not be copied.
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    if args.oracle:
        os.environ[PYTHON_VARIABLE] = args.oracle
    if args.show:
        return show(args.show)
    try:
        version = oracle_version(args.no_oracle)
    except Unavailable as error:
        print(f"{error}; or pass --no-oracle", file=sys.stderr)
        return 2
    # A run with ONNX Runtime says more than one without.
    folder = args.folder.resolve() / (version or "numpy")
    run = Run(
        args.seed,
        args.programs,
        folder=folder,
        chunk=CHUNK,
        again=args.again,
        module="generated_modules",
    )
    report = functools.partial(report_of, run, args.workers, version)
    return finish(report, args.output, print_report, is_wrong)


def report_of(run: Run, workers: int, version: str) -> dict[str, Any]:
    """Run it, beside a version of ONNX Runtime if there is one; return the report."""
    report = conditions(run, workers, "fuzz_modules", "fuzz-modules")
    report["modules"] = report.pop("programs")
    report["versions"]["onnxruntime"] = version or "not used"
    report["ours"] = timed(run, workers, run_chunk, Tally, report).summary()
    return report


def is_wrong(report: dict[str, Any]) -> bool:
    """Return whether there is a verdict in a report that must not be."""
    return any(report["ours"]["verdicts"][kind] for kind in WRONG)


def oracle_version(unwanted: bool) -> str:
    """Return the version of ONNX Runtime; empty if it is not to be used."""
    if unwanted:
        os.environ[PYTHON_VARIABLE] = os.devnull
        return ""
    oracle = Oracle()
    oracle.close()
    return f"onnxruntime-{oracle.version}"


def print_report(report: dict[str, Any]) -> None:
    """Print the counts."""
    for name, value in report["ours"].items():
        if name == "by_operator":
            continue
        if not isinstance(value, dict):
            print(f"{name:28}{value:>12,}")
            continue
        print(name)
        for key, count in value.items():
            print(f"  {key:60.60}{count!s:>10}")


def show(path: Path) -> int:
    """Judge a saved counterexample again, and print it."""
    from . import pipeline
    from .relax_module import build

    saved = json.loads(path.read_text())
    module = Module.from_json(saved["program"])
    seed = int(path.stem.split("-")[-2])
    if module_of(seed, saved["number"]) != module:
        print("# Another version of the generator drew it.")
    lowered = pipeline.lowered(build(module))
    print(lowered.script())
    for variant in pipeline.VARIANTS[1:]:
        print(f"# {variant}")
        print(pipeline.fused(lowered, variant, module.options).script())
    verdict = judge(module, f"{seed}/{saved['number']}", oracle_if_any())
    print(f"verdict: {verdict.kind} {verdict.detail}")
    return 1 if verdict.kind in WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
