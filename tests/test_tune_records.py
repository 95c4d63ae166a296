"""Tuned records with a fusion: in another process, without the package, and half written."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from fuse_epilogue import tune, workloads
from fuse_epilogue.tune import records
from fuse_epilogue.tune.lock import locked
from fuse_epilogue.tune.records import CUT, RECORDS, WORKLOADS
from test_loading import entry_point
from tuning import TARGET, candidates, split, without_intrinsics

pytestmark = [
    pytest.mark.slow,  # processes without this package
    pytest.mark.usefixtures(without_intrinsics.__name__),
]
__all__ = ["entry_point", "without_intrinsics"]

MOD = tvm.IRModule(
    {"main": workloads.matmul(16, 16, 16, activation="relu").with_attr("global_symbol", "main")}
)


def commit(folder: Path, sch: Schedule, seconds: float = 1e-3) -> None:
    database = tune.open_database(folder)
    database.commit_tuning_record(
        ms.database.TuningRecord(sch.trace, database.commit_workload(MOD), [seconds], TARGET, None)
    )


def fused_candidate() -> Schedule:
    fused, _ = split(candidates(MOD, tune.space(TARGET), 8))
    return fused[0]


READ = """
import sys
import tvm
from tvm.s_tir import meta_schedule as ms

print("fuse_epilogue" in sys.modules)
database = ms.database.JSONDatabase(work_dir=sys.argv[1])
record = database.get_all_tuning_records()[0]
target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
sch = database.query_schedule(record.workload.mod, target, "main")
print(tvm.ir.save_json(sch.mod) if len(sys.argv) > 2 else "matmul_init" in sch.mod.script())
"""


def read(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program = folder / "read.py"
    program.write_text(READ)
    return subprocess.run(
        [sys.executable, str(program), str(folder)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# ---------------------------------------------------------------------------------------------
# In another process
# ---------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_record_replays_where_tvm_loads_the_package(
    tmp_path: Path, entry_point: dict[str, str]
) -> None:
    sch = fused_candidate()
    commit(tmp_path, sch)
    done = read(tmp_path, **entry_point)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True"]
    found = tune.open_database(tmp_path).query_schedule(MOD, TARGET, "main")
    tvm.ir.assert_structural_equal(found.mod, sch.mod)


@pytest.mark.full
@pytest.mark.parametrize("names", [(), ("matmul",), ("matmul", "bias")], ids=str)
def test_without_the_package_the_record_says_what_it_needs(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """By the rule, and by hand: two blocks alone would be replayed by TVM's own primitive."""
    sch = Schedule(MOD)
    if names:
        sch.fuse_reduction_epilogue(*names)
    else:
        assert tune.absorb(sch, sch.get_sblock("matmul")) == ["bias"]
    commit(tmp_path, sch)
    done = read(tmp_path, TVM_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode != 0
    assert done.stdout.split() == ["False"]
    last = done.stderr.strip().splitlines()[-1]
    assert "this trace needs the Python package fuse_epilogue" in last


def test_the_step_that_says_so_does_nothing_and_stays() -> None:
    sch = fused_candidate()
    assert str(sch.trace).count("# needs the package fuse_epilogue:") == 1
    first = Schedule(MOD)
    sch.trace.apply_to_schedule(first, remove_postproc=False)
    assert str(first.trace) == str(sch.trace)
    plain = Schedule(MOD)
    plain.fuse_reduction_epilogue("matmul", "bias")
    marked = Schedule(MOD)
    tune.absorb(marked, marked.get_sblock("matmul"))
    tvm.ir.assert_structural_equal(plain.mod, marked.mod)
    # The text runs as Python.
    lines = [line.strip() for line in str(marked.trace).splitlines() if line.startswith("  ")]
    again = Schedule(MOD)
    exec("\n".join(lines), {"sch": again})
    tvm.ir.assert_structural_equal(again.mod, marked.mod)


def test_other_intrinsics_are_tvms_business() -> None:
    sch = Schedule(MOD)
    loop = sch.get_loops("matmul")[2]
    with pytest.raises(ValueError, match="'no_such_intrinsic' is not registered"):
        sch.tensorize(loop, "no_such_intrinsic")


# ---------------------------------------------------------------------------------------------
# Half written
# ---------------------------------------------------------------------------------------------


def unfused(folder: Path, count: int) -> list[bytes]:
    for i in range(count):
        sch = Schedule(MOD)
        sch.parallel(sch.get_loops("matmul")[0])
        commit(folder, sch, 1e-3 * (i + 1))
    return (folder / RECORDS).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("ending", [b"", b"\n"], ids=["no end of line", "end of line"])
def test_half_a_line_is_put_aside(tmp_path: Path, ending: bytes) -> None:
    lines = unfused(tmp_path, 3)
    half = lines[2][: len(lines[2]) // 2]
    (tmp_path / RECORDS).write_bytes(b"".join(lines[:2]) + half + ending)
    with pytest.raises(RuntimeError, match="Unexpected token"):
        ms.database.JSONDatabase(work_dir=str(tmp_path))
    database = tune.open_database(tmp_path)
    assert len(database) == tune.measured(database, MOD) == 2
    assert (tmp_path / RECORDS).read_bytes() == b"".join(lines[:2])
    assert (tmp_path / (RECORDS + CUT)).read_bytes() == half + b"\n"
    # What is appended then is a line of its own.
    assert unfused(tmp_path, 1)[:2] == lines[:2]
    assert len(tune.open_database(tmp_path)) == 3


def test_half_a_workload_is_put_aside(tmp_path: Path) -> None:
    tune.open_database(tmp_path).commit_workload(MOD)
    whole = (tmp_path / WORKLOADS).read_bytes()
    (tmp_path / WORKLOADS).write_bytes(whole[: len(whole) // 3])
    database = tune.open_database(tmp_path)
    assert not database.has_workload(MOD)
    assert tune.measured(database, MOD) == 0
    assert (tmp_path / WORKLOADS).read_bytes() == b""


def test_whole_files_are_not_touched(tmp_path: Path) -> None:
    lines = unfused(tmp_path / "new" / "folder", 2)
    tune.open_database(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / RECORDS).read_bytes() == b"".join(lines)
    assert not list(tmp_path.rglob("*" + CUT))


def test_a_whole_last_line_is_kept_without_its_end(tmp_path: Path) -> None:
    lines = unfused(tmp_path, 2)
    (tmp_path / RECORDS).write_bytes(b"".join(lines).rstrip(b"\n"))
    assert len(tune.open_database(tmp_path)) == 2
    assert (tmp_path / RECORDS).read_bytes() == b"".join(lines)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of one function and two measurements."""
    folder = tmp_path_factory.mktemp("good")
    unfused(folder, 2)
    return folder


def trace(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what changes the trace of a record."""

    def changed(line: Any) -> Any:
        change(line[1][0])
        return line

    return changed


DAMAGE = {
    "no record": (RECORDS, lambda line: {}, "not a pair of a workload's number and a measurement"),
    "null": (RECORDS, lambda line: None, "not a pair"),
    "only a number": (RECORDS, lambda line: 0, "not a pair"),
    "a workload more": (RECORDS, lambda line: [1, line[1]], "of workload 1, .* there are 1"),
    "a workload less": (RECORDS, lambda line: [-1, line[1]], "of workload -1"),
    "no number": (RECORDS, lambda line: [True, line[1]], "not a pair"),
    "half": (RECORDS, lambda line: [0, line[1][:2]], "has not four parts"),
    "no times": (RECORDS, lambda line: [0, [line[1][0], [None], *line[1][2:]]], "times"),
    "no target": (
        RECORDS,
        lambda line: [0, [*line[1][:2], 3, line[1][3]]],
        "its target is not valid",
    ),
    "no arguments": (RECORDS, lambda line: [0, [*line[1][:3], [["TENSOR", "f", [None]]]]], "argum"),
    "no trace": (RECORDS, lambda line: [0, [[], *line[1][1:]]], "not made of steps and decisions"),
    "no step": (RECORDS, trace(lambda t: t[0].append(None)), "not made of steps"),
    "an attribute of null": (
        RECORDS,
        trace(lambda t: t[0][0][2].__setitem__(0, None)),
        "the step GetSBlock .* has null",
    ),
    "null in an attribute": (
        RECORDS,
        trace(lambda t: t[0][0][2].append([{"a": None}])),
        "the step GetSBlock .* has null",
    ),
    "a step of null": (RECORDS, trace(lambda t: t[0][1].__setitem__(1, [None])), "of nothing"),
    "decides nothing": (RECORDS, trace(lambda t: t[1].append([-1, [4, 4]])), "is of no step"),
    "decides null": (
        RECORDS,
        trace(lambda t: t[1].append([0, [None]])),
        "is not a list of numbers",
    ),
    "a strange step": (
        RECORDS,
        trace(lambda t: t[0][0].__setitem__(0, "Wave")),
        "TVM says: .*Wave",
    ),
    "no function": (WORKLOADS, lambda line: {}, "not a pair of a hash and .* put back a copy"),
    "no module": (WORKLOADS, lambda line: [line[0], "AAAA"], "TVM says: "),
}


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE.values(), ids=list(DAMAGE))
def test_a_damaged_line_is_named_and_nothing_is_changed(
    tmp_path: Path, good: Path, name: str, damage: Callable[[Any], Any], message: str
) -> None:
    """Of many of these TVM's own reader dies, and this process with it."""
    folder = tmp_path / "damaged"
    shutil.copytree(good, folder)
    *before, last = (good / name).read_bytes().splitlines(keepends=True)
    bad = json.dumps(damage(json.loads(last))).encode() + b"\n"
    (folder / name).write_bytes(b"".join(before) + bad)
    with pytest.raises(
        ValueError, match=f"(?s){name}, line {len(before) + 1} is not a .*{message}"
    ):
        tune.open_database(folder)
    assert (folder / name).read_bytes() == b"".join(before) + bad
    assert not list(folder.rglob("*" + CUT))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "before, after",
    [(b'"kind":"llvm"', b'"kind":"ll\\u0000vm"'), *((b"2e-3", n) for n in (b"Infinity", b"1e999"))],
    ids=["a zero byte", "Infinity", "too large"],
)
def test_a_line_that_only_tvm_cannot_read_is_named(
    tmp_path: Path, before: bytes, after: bytes, number: int
) -> None:
    """Python's own reader of JSON takes these, and TVM's error names no line."""
    lines = [re.sub(rb"\[0\.00\d+\]", b"[2e-3]", line) for line in unfused(tmp_path, 3)]
    (tmp_path / RECORDS).write_bytes(b"".join(lines))
    assert len(tune.open_database(tmp_path)) == 3
    assert before in lines[number]
    lines[number] = lines[number].replace(before, after)
    (tmp_path / RECORDS).write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match=f"(?s){RECORDS}, line {number + 1} is not a .*TVM says: "):
        tune.open_database(tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == b"".join(lines)


def test_the_null_that_tvm_writes_is_read(tmp_path: Path) -> None:
    sch = Schedule(MOD)
    sch.transform_layout("matmul", ("read", 0), lambda i, k: (k, i))
    commit(tmp_path, sch)
    step = json.loads((tmp_path / RECORDS).read_bytes())[1][0][0][-1]
    assert step[0] == "TransformLayout" and step[2][2] is None
    assert len(tune.open_database(tmp_path)) == 1


def test_a_line_in_the_middle_is_not_mended(tmp_path: Path) -> None:
    lines = unfused(tmp_path, 2)
    (tmp_path / RECORDS).write_bytes(lines[0][:-9] + b"\n" + lines[1])
    with pytest.raises(ValueError, match=f"{RECORDS}, line 1 is not a record, it is not JSON"):
        tune.open_database(tmp_path)


# ---------------------------------------------------------------------------------------------
# A disk that is full
# ---------------------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What this process writes behind so many bytes of a file is lost, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def record_of(database: ms.database.JSONDatabase, sch: Schedule) -> ms.database.TuningRecord:
    workload = database.commit_workload(MOD)
    return ms.database.TuningRecord(sch.trace, workload, [1e-3], TARGET, None)


@pytest.mark.parametrize("room", [0, 100], ids=["none of the line", "half of the line"])
def test_a_full_disk_is_noticed_and_nothing_stays_half(tmp_path: Path, room: int) -> None:
    line = unfused(tmp_path, 1)[0]
    database = tune.open_database(tmp_path)
    record = record_of(database, Schedule(MOD))
    with (
        files_of_at_most(len(line) + room),
        pytest.raises(OSError, match=f"{RECORDS} cannot be written, and its disk may be full"),
    ):
        records.commit(database, record)
    assert (tmp_path / RECORDS).read_bytes() == line
    records.commit(database, record)  # there is room again
    assert len(tune.open_database(tmp_path)) == 2


def test_a_workload_that_a_full_disk_loses(tmp_path: Path) -> None:
    database = tune.open_database(tmp_path)
    with files_of_at_most(100), pytest.raises(OSError, match=f"{WORKLOADS} cannot be written"):
        records.commit_workload(database, MOD)
    assert (tmp_path / WORKLOADS).read_bytes() == b""


def test_a_record_is_never_glued_to_half_a_line(tmp_path: Path) -> None:
    unfused(tmp_path, 1)
    database = tune.open_database(tmp_path)
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b"[0, [")
    records.commit(database, record_of(database, Schedule(MOD)))
    assert (tmp_path / (RECORDS + CUT)).read_bytes() == b"[0, [\n"
    assert len(tune.open_database(tmp_path)) == 2


def test_what_cannot_be_written_is_named_when_a_database_is_opened(tmp_path: Path) -> None:
    lines = unfused(tmp_path, 1)
    torn = lines[0] + lines[0][:50]
    (tmp_path / RECORDS).write_bytes(torn)
    with files_of_at_most(0), pytest.raises(OSError, match=f"{RECORDS}{CUT} cannot be written"):
        tune.open_database(tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == torn  # the half is not lost either


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    database = tune.open_database(tmp_path)
    record = record_of(database, Schedule(MOD))
    (tmp_path / RECORDS).unlink()
    with pytest.raises(OSError, match=f"{RECORDS} cannot be written: No such file"):
        records.commit(database, record)
    assert not (tmp_path / RECORDS).exists()


# ---------------------------------------------------------------------------------------------
# One process at a time
# ---------------------------------------------------------------------------------------------


def test_who_tunes_has_the_folder_alone(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ValueError, match=f"'{tmp_path}' is in use"):
        tune.open_database(tmp_path)
    with locked(tmp_path, shared=True):
        assert len(tune.open_database(tmp_path)) == 0  # of readers there may be many
        with pytest.raises(ValueError, match="take another folder"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(UserWarning, match="cannot be locked .*no locks.* one process at a time"):
        assert len(tune.open_database(tmp_path)) == 0
