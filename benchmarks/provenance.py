"""Where results come from: the commit they were measured at, and the folders they depend on.

    make stale      lists the results whose folders have changed since

Every file in benchmarks/results names both: "commit", and "depends_on" with folders and files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "python/fuse_epilogue"
SCHEDULES = tuple(
    f"{PACKAGE}/{folder}"
    for folder in ("kernels", "planner", "recognize", "rewrites", "schedules", "tir")
)

#: By the name of a file in benchmarks/results, without ".json": what can change its figures.
DEPENDS_ON: dict[str, tuple[str, ...]] = {
    "cascades": (
        *(f"{PACKAGE}/{folder}" for folder in ("models", "transform")),
        *SCHEDULES,
        "benchmarks/cascades.py",
        "benchmarks/cascade_parties.py",
    ),
    "conv1d_cpu": (
        *("cpp", *SCHEDULES, "benchmarks/conv1d_cpu.py"),
        *("benchmarks/conv1d_cpu_bound.py", "benchmarks/conv1d_cpu_cases.py"),
    ),
    "conv1d_cuda": ("cpp", *SCHEDULES, "benchmarks/conv1d_cuda.py"),
    "conv1d_streams": ("cpp", *SCHEDULES, f"{PACKAGE}/workloads", "benchmarks/conv1d_streams.py"),
    "conv_layers": (
        *(f"{PACKAGE}/{folder}" for folder in ("models", "transform")),
        *SCHEDULES,
        "benchmarks/conv_layers.py",
        "benchmarks/layers.py",
    ),
    "cuda_registers": ("cpp", *SCHEDULES, "benchmarks/cuda_registers.py"),
    "fusion": ("cpp", "benchmarks/fusion.py", "benchmarks/fusion_programs.py"),
    "fuzz": ("cpp", f"{PACKAGE}/verify", "tests/generated"),
    "fuzz_cascades": ("cpp", "tests/cascades", "tests/generated_cascades"),
    "fuzz_certificates": ("cpp", f"{PACKAGE}/verify", "tests/certificate_fuzz.py"),
    "fuzz_cuda": ("cpp", *SCHEDULES, "tests/guarded_functions"),
    "fuzz_modules": ("cpp", f"{PACKAGE}/transform", "tests/generated_modules"),
    "fuzz_neuron": ("cpp", f"{PACKAGE}/neuron", *SCHEDULES, "tests/guarded_functions"),
    "fuzz_schedules": ("cpp", *SCHEDULES, "tests/planned_functions"),
    "kinds": (
        f"{PACKAGE}/transform",
        *SCHEDULES,
        "benchmarks/kinds.py",
        "benchmarks/kinds_ways.py",
        "benchmarks/kinds_workloads.py",
    ),
    "model_fusion": ("cpp", f"{PACKAGE}/transform", "benchmarks/model_fusion.py"),
    "models": (
        *(f"{PACKAGE}/{folder}" for folder in ("models", "transform")),
        *SCHEDULES,
        "benchmarks/models_torch.py",
    ),
    "mutants": (
        *(f"{PACKAGE}/{folder}" for folder in ("verify", "planner", "neuron", "transform")),
        "tests/mutants",
    ),
    "neuron_ladder": (f"{PACKAGE}/neuron", f"{PACKAGE}/kernels/trainium"),
    "neuron_planned": (
        f"{PACKAGE}/neuron",
        *SCHEDULES,
        "benchmarks/neuron_planned.py",
        "benchmarks/planned_functions.py",
    ),
    "neuron_public": (f"{PACKAGE}/neuron",),
    "neuron_published": (
        f"{PACKAGE}/neuron",
        f"{PACKAGE}/kernels/trainium",
        "benchmarks/published_products.py",
    ),
    "operators": (
        *(f"{PACKAGE}/{folder}" for folder in ("models", "transform")),
        *SCHEDULES,
        "benchmarks/operators.py",
    ),
    "pass_time": ("cpp", f"{PACKAGE}/transform", "benchmarks/pass_time.py"),
    "planner": ("cpp", *SCHEDULES, "benchmarks/planner.py"),
    "planner_znver5": ("cpp", *SCHEDULES, "benchmarks/planner.py"),
    "planning": (*SCHEDULES, f"{PACKAGE}/neuron", "benchmarks/planning.py"),
    "quantised": (
        *(f"{PACKAGE}/{folder}" for folder in ("models", "transform")),
        *SCHEDULES,
        "benchmarks/quantised.py",
        "benchmarks/layers.py",
    ),
    "primitive": ("cpp", f"{PACKAGE}/schedule.py", "benchmarks/primitive.py"),
    "tune": ("cpp", f"{PACKAGE}/tune", "benchmarks/tune.py"),
    "tvm_tests": ("cpp", f"{PACKAGE}/schedule.py", "tests/tvm_tests"),
}


def provenance(name: str) -> dict[str, Any]:
    """Return what a file of results says of its origin.

    Parameters
    ----------
    name : str
        Name of the file, without ".json".
    """
    return {"commit": commit(), "depends_on": list(DEPENDS_ON[name])}


def commit(root: Path = ROOT) -> str:
    """Return the commit of the working tree, with "-dirty" where it has changes.

    Other results, which one run writes after another, change nothing that is measured.
    """
    try:
        changed = _git(root, "status", "--porcelain", "-uno", "--", ".", ":!benchmarks/results")
        return _git(root, "rev-parse", "HEAD").strip() + ("-dirty" if changed.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@dataclass(frozen=True)
class Stale:
    """A file of results that is to be measured again.

    Attributes
    ----------
    name : str
        Name of the file.
    why : str
        What has changed since, or why that cannot be said.
    """

    name: str
    why: str


def stale(root: Path = ROOT) -> Iterator[Stale]:
    """Yield the results whose folders have changed since they were measured."""
    for path in sorted((root / "benchmarks" / "results").glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        measured = str(data.get("commit", "unknown")).removesuffix("-dirty")
        folders = data.get("depends_on")
        if not folders:
            yield Stale(path.name, "it does not name what it depends on")
        elif not _has_commit(root, measured):
            yield Stale(path.name, f"its commit {measured[:10]} is not in this repository")
        else:
            changed = [each for each in folders if _differs(root, measured, each)]
            if changed:
                range_, below = f"{measured}..HEAD", ("--", *changed)
                count = _git(root, "rev-list", "--count", range_, *below).strip()
                commits = "1 commit" if count == "1" else f"{count} commits"
                yield Stale(path.name, f"{commits} since {measured[:10]}: {', '.join(changed)}")


def _has_commit(root: Path, name: str) -> bool:
    try:
        _git(root, "cat-file", "-e", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        return False
    return True


def _differs(root: Path, measured: str, path: str) -> bool:
    """Return whether files below a path differ from a commit, committed or not."""
    return bool(_git(root, "diff", "--name-only", measured, "--", path).strip())


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Print the results that are stale."""
    found = list(stale())
    for each in found:
        print(f"{each.name:22} {each.why}")
    if not found:
        print("No result is older than what it depends on.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
