"""``make fuzz-modules N=1000``: judge random Relax modules, and write down the counts."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from generated.__main__ import conditions
from generated.runner import ProgressBar, provenance, run_all
from generated.state import ROOT, Run, StateError

from .chunk import module_of, oracle_if_any, run_chunk
from .oracle import PYTHON_VARIABLE, Oracle, Unavailable
from .spec import Module
from .tally import Tally

FOLDER = ROOT / "build" / "fuzz-modules"
CHUNK = 25


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m generated_modules", description=__doc__)
    parser.add_argument("-n", "--modules", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the state")
    parser.add_argument(
        "--oracle", metavar="PYTHON", help="the Python that has onnxruntime, if it is not this one"
    )
    parser.add_argument("--no-oracle", action="store_true", help="compare with NumPy alone")
    parser.add_argument("--show", type=Path, metavar="FILE", help="judge one counterexample again")
    args = parser.parse_args()
    # The modules are tiny, and a process that has threads must not be copied.
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
    run = Run(
        args.seed,
        args.modules,
        # A run with ONNX Runtime says more than one without.
        folder=args.folder.resolve() / (version or "numpy"),
        chunk=CHUNK,
        module="generated_modules",
    )
    report = {**conditions(run, args.workers), "benchmark": "fuzz-modules"}
    report |= provenance("fuzz_modules")
    report["modules"] = report.pop("programs")
    report["versions"]["onnxruntime"] = version or "not used"
    start = time.monotonic()
    try:
        total = run_all(run, args.workers, ProgressBar(run.programs), run_chunk, Tally)
    except StateError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    report["wall_time_s"] = round(time.monotonic() - start, 1)
    report["ours"] = total.summary()
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    print_report(report["ours"])
    return 1 if total.wrong else 0


def oracle_version(unwanted: bool) -> str:
    """Return the version of ONNX Runtime; empty if it is not to be used."""
    if unwanted:
        os.environ[PYTHON_VARIABLE] = os.devnull
        return ""
    oracle = Oracle()
    oracle.close()
    return f"onnxruntime-{oracle.version}"


def print_report(summary: dict[str, Any]) -> None:
    """Print the counts."""
    for name, value in summary.items():
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
    from .verdict import WRONG, judge

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
