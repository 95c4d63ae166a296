"""The report of a long run as JSON: its conditions, and how it is written."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from .runner import provenance
from .state import Run


def conditions(run: Run, workers: int, name: str = "fuzz", benchmark: str = "") -> dict[str, Any]:
    """Return what has to be known about a run to judge its counts.

    Parameters
    ----------
    run : Run
    workers : int
        Processes.
    name : str
        Name of the file in benchmarks/results, without ".json".
    benchmark : str, optional
        What the report is called; its name if empty.
    """
    return {
        "benchmark": benchmark or name,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seed": run.seed,
        "programs": run.programs,
        **provenance(name),
        **versions_and_machine(workers),
    }


def versions_and_machine(workers: int) -> dict[str, Any]:
    """Return with what versions and on which machine this process runs."""
    import tvm
    import tvm_ffi

    import fuse_epilogue

    return {
        "versions": {
            "fuse_epilogue": fuse_epilogue.__version__,
            "tvm": tvm.__version__,
            "tvm_ffi": tvm_ffi.__version__,
            "python": platform.python_version(),
        },
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "processes": workers},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def to_json(report: dict[str, Any]) -> str:
    """Write the report as JSON, each feature on a line of its own."""
    text = json.dumps(report, indent=1)
    return _innermost_on_one_line(text) + "\n"


def _innermost_on_one_line(text: str) -> str:
    parts, depth = [], 0
    for line in text.split("\n"):
        stripped = line.strip()
        indent = len(line) - len(stripped)
        if indent >= 5 or (indent == 4 and stripped[0] in "}]"):
            parts.append(" " * (not parts[-1].endswith("{") and depth > 0) + stripped)
            depth += 1
            continue
        depth = 0
        parts.append(("\n" if parts else "") + line)
    return "".join(parts)
