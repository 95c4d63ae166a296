"""Convolutions in all of their forms, their traces, and how these are stored and replayed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule, Trace
from tvm.target import Target

from fuse_epilogue.planner.problems.cpu import find_conv
from fuse_epilogue.planner.problems.cpu.depthwise_problem import ELEMENTS, ROWS, TILES
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.rewrites.prepare import prepare
from fuse_epilogue.workloads import depthwise_conv1d, relax_depthwise_conv1d
from planner_problems import machine

CONV = depthwise_conv1d(2, 4, 70, 3, activation="relu")
STRIDED = depthwise_conv1d(2, 4, 70, 3, activation="relu", stride=2)
FUNCTIONS: dict[str, Any] = {
    "relu": CONV,
    "nothing follows": depthwise_conv1d(2, 4, 70, 3, bias=False),
    "stride": STRIDED,
    "channels last": depthwise_conv1d(2, 5, 70, 3, layout="NWC", activation="relu"),
    "16 bits": depthwise_conv1d(2, 4, 70, 3, dtype="float16", activation="silu"),
    # Columns are computed that nobody reads.
    "made by Relax": relax_depthwise_conv1d(1, 8, 64, 4, padding="causal"),
}
#: Parameters of the rewriting "rows" that suit CONV.
IN_ROWS = {"lanes": 16, "stream": 0, "parallel": 1}
FORMS = {"rows": ROWS, "tiles": TILES, "elements": ELEMENTS}


def steps(sch: Schedule) -> list[str]:
    """The names of the rewritings on a trace."""
    named = [str(inst.attrs[0]) for inst in sch.trace.insts if inst.kind.name == "Tensorize"]
    return [name for name in named if name.startswith("fuse_epilogue.")]


def stored(sch: Schedule) -> Any:
    """The trace by way of JSON text."""
    return tvm.ir.load_json(json.dumps(json.loads(tvm.ir.save_json(sch.trace.as_json()))))


def replayed(sch: Schedule, func: Any, debug_mask: str = "all") -> Schedule:
    fresh = Schedule(func, debug_mask=debug_mask)
    Trace.apply_json_to_schedule(stored(sch), fresh)
    return fresh


READ = """
import sys, tvm
{package}
from tvm.s_tir import Schedule, Trace
func, trace, made = (tvm.ir.load_json(open(path).read()) for path in sys.argv[1:])
sch = Schedule(func)
Trace.apply_json_to_schedule(trace, sch)
tvm.ir.assert_structural_equal(sch.mod, made)
print("the same")
"""


def read(folder: Path, sch: Schedule, func: Any, package: str) -> Any:
    """Replay a trace in a process that has read nothing but files."""
    files = {"func": func, "trace": sch.trace.as_json(), "made": sch.mod}
    for name, value in files.items():
        (folder / name).write_text(tvm.ir.save_json(value))
    return subprocess.run(
        [sys.executable, "-c", READ.format(package=package), *(folder / name for name in files)],
        env={**os.environ, "TVM_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def scheduled(name: str, form: str) -> list[Schedule]:
    """One schedule for each way to fuse, with as many vectors as there may be."""
    problem = find_conv(Request(FUNCTIONS[name], machine()))
    assert problem is not None
    points, _ = problem.space.feasible()
    points = points.take(points["form"] == FORMS[form])
    last = {points.at(index)["fusion"]: points.at(index) for index in range(points.size)}
    return [problem.apply(point) for point in last.values()]


def machine_target() -> Target:
    return Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})


def ready(func: Any, fused: bool = True) -> tuple[Schedule, Any]:
    prepared = prepare(func)
    assert prepared is not None
    sch, conv = prepared
    if fused:
        sch.fuse_reduction_epilogue(conv)
    return sch, conv
