"""What type checkers see of the package, the parts that exist only at run time included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

import fuse_epilogue

#: A user's program. A comment holds what its line must be blamed for.
PROGRAM = """\
import fuse_epilogue
from fuse_epilogue import FusionReport, Schedule, tune, verify, workloads
from fuse_epilogue.planner import Plan
from fuse_epilogue.transform import FuseReductionEpilogue, Report, report_of
from typing_extensions import assert_type

func = workloads.matmul(16, 16, 16)
sch = Schedule(func)
loops = sch.get_loops("matmul")  # one of TVM's own methods
report = sch.fuse_reduction_epilogue("matmul", numerics="exact")
assert_type(report, FusionReport)
assert_type(report.fusable, bool)
assert_type(fuse_epilogue.analyze(sch, "matmul"), FusionReport)
assert_type(fuse_epilogue.plan(func, "trn1"), Plan)
assert_type(report_of(FuseReductionEpilogue("always")(sch.mod)), Report)
sch.fuse_reduction_epilogue(sch.get_sblock("matmul"), numerics=report.numerics)
verify.equivalent(func, func, numerics=report.numerics)
FuseReductionEpilogue()()  # error: Missing positional argument "mod"
sch.fuse_reduction_epilogue("matmul", numerical="exact")  # error: Unexpected keyword
fuse_epilogue.plan(func, machine="trn1")  # error: Unexpected keyword
report.fuseable  # error: "FusionReport" has no attribute
sch.fuse_reduction_epilogue(3)  # error: Argument 1
sch.fuse_reduction_epilogue("matmul", ["bias"])  # error: Argument 2
sch.fuse_reduction_epilogue("matmul", numerics="exat")  # error: Argument "numerics"
sch.fuse_reduction_epilogue("matmul", distribute="no")  # error: Argument "distribute"
fuse_epilogue.analyze(sch, 3)  # error: Argument 2
fuse_epilogue.analyze(sch, "matmul", numerics="exat")  # error: Argument "numerics"
FuseReductionEpilogue("sometimes")  # error: Argument 1
FuseReductionEpilogue(numerics="exat")  # error: Argument "numerics"
tune.space("llvm", numerics="exat")  # error: Argument "numerics"
verify.check(func, func, None)  # error: Argument 3
verify.equivalent(func, func, numerics="exat")  # error: Argument "numerics"
verify.prove(func, func, numerics="exat")  # error: Argument "numerics"
verify.compile_function(func, "float16")  # error: Argument 2
"""


@pytest.mark.full
def test_a_users_program_is_checked(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(PROGRAM)
    package = Path(fuse_epilogue.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "user.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(package), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        int(n): text for n, text in re.findall(r"^user.py:(\d+): error: (.*)", done.stdout, re.M)
    }
    lines = enumerate(PROGRAM.splitlines(), start=1)
    wanted = {n: line.partition("  # error: ")[2] for n, line in lines if "  # error: " in line}
    assert found.keys() == wanted.keys(), done.stdout + done.stderr
    assert all(part in found[line] for line, part in wanted.items()), done.stdout


def test_the_class_for_type_checkers_is_tvms_own() -> None:
    assert fuse_epilogue.Schedule is tvm.s_tir.Schedule


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(fuse_epilogue.__file__).with_name("py.typed").is_file()
