"""Databases of tuning records that survive being killed: a line per measurement, checked first.

TVM's ``JSONDatabase`` appends a line for every workload and for every record. A process that is
killed while it writes leaves half a line, and TVM then refuses the whole file, or glues the next
record to it. Opened here, such a line is put aside. Any other line that TVM cannot read is named:
TVM itself names none, and of some it dies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord, Workload

from .lock import locked

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

#: What is cut off a file is appended to one of the same name with this behind it.
CUT = ".cut"

#: What to do about a line, by its file: a record names its workload by the number of its line.
_WAY_OUT = {
    WORKLOADS: "put back a copy of the file, or begin in another folder",
    RECORDS: "take that line out, or begin in another folder",
}


def open_database(folder: str | Path) -> JSONDatabase:
    """Open the database in a folder, or begin one.

    Parameters
    ----------
    folder : str or Path
        Made if it is not there.

    Returns
    -------
    tvm.s_tir.meta_schedule.database.JSONDatabase
        With every whole record. Half a line at the end of a file, which a killed process has left,
        is moved to a file beside it (:data:`CUT`).

    Raises
    ------
    ValueError
        A line is neither that nor a record: the file is damaged, and not by a killed process. Or
        another process tunes into the folder just now.

    Example
    -------
    >>> from fuse_epilogue import tune
    >>> database = tune.open_database("tuned/layer1")
    >>> len(database)
    0
    """
    with locked(Path(folder), shared=True):
        return read_database(Path(folder))


def read_database(folder: Path) -> JSONDatabase:
    """Open the database in a folder that is there, and locked by this process."""
    workloads = _mended(folder / WORKLOADS, workload_fault)
    records = _mended(folder / RECORDS, lambda line: record_fault(line, len(workloads)))
    try:
        return JSONDatabase(work_dir=str(folder))
    except Exception:  # whatever a part of TVM's reader raises
        _find_unreadable(folder, workloads, records)
        raise


def measured(database: JSONDatabase, mod: IRModule) -> int:
    """Return how many measurements of a module there are.

    Parameters
    ----------
    database : tvm.s_tir.meta_schedule.database.JSONDatabase
    mod : tvm.ir.IRModule
        With the one function that was tuned, as "main".

    Returns
    -------
    int

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import tune, workloads
    >>> mod = tvm.IRModule({"main": workloads.matmul(16, 16, 16)})
    >>> tune.measured(tune.open_database("tuned"), mod)
    0
    """
    if not database.has_workload(mod):
        return 0
    return len(database.get_top_k(database.commit_workload(mod), len(database)))


def workload_fault(line: Any) -> str:  # noqa: ANN401 - any JSON
    """Return why TVM could not read a workload, as far as its shape goes; empty if it could."""
    return "" if _is(line, str, str) else "it is no pair of a hash and a module"


def record_fault(line: Any, workloads: int) -> str:  # noqa: ANN401 - any JSON
    """Return why TVM could not read a record, or would die of it; empty if it could.

    Parameters
    ----------
    line : Any
        What the line holds.
    workloads : int
        How many workloads there are to name.

    Returns
    -------
    str
    """
    if not _is(line, int, list):
        return "it is no pair of a workload's number and a measurement"
    workload, measurement = line
    if not 0 <= workload < workloads:
        return f"it is of workload {workload}, of those from 0 on there are {workloads}"
    if len(measurement) != 4:
        return "its measurement has not four parts: a trace, times, a target and arguments"
    trace, times, target, arguments = measurement
    if not _is(trace, list, list) or not all(_is(i, str, list, list, list) for i in trace[0]):
        return "its trace is not made of steps and decisions"
    if any(None in inputs for _, inputs, _, _ in trace[0]):
        return "a step of its trace is of nothing"
    for decision in trace[1]:
        if not _is(decision, int, (int, list)) or not 0 <= decision[0] < len(trace[0]):
            return "a decision of its trace is of no step"
        if isinstance(decision[1], list) and not _all(decision[1], int):
            return "a decision of its trace is no numbers"
    if times is not None and not _all(times, (int, float)):
        return "its times are no numbers"
    if target is not None and not isinstance(target, (dict, str)):
        return "its target is none"
    if arguments is not None and not (
        _all(arguments, list) and all(_is(a, str, str, list) and _all(a[2], int) for a in arguments)
    ):
        return "its arguments are no tensors"
    return ""


def _is(value: Any, *kinds: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a value of JSON is a list of elements of these kinds."""
    if not isinstance(value, list) or len(value) != len(kinds):
        return False
    return all(_all([each], kind) for each, kind in zip(value, kinds, strict=True))


def _all(value: Any, kind: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a value of JSON is a list, its elements of a kind; a bool is no number."""
    return isinstance(value, list) and all(
        isinstance(each, kind) and not isinstance(each, bool) for each in value
    )


def _mended(file: Path, fault: Callable[[Any], str]) -> list[Any]:
    """Return what the lines of a file hold; half a last line is moved elsewhere.

    Raises
    ------
    ValueError
        Another line is none that TVM can read.
    """
    data = file.read_bytes() if file.exists() else b""
    lines = data.splitlines(keepends=True)
    found: list[Any] = []
    for number, line in enumerate(lines, 1):
        is_json, value = _json(line)
        if not is_json and number == len(lines):
            _cut(file, len(data) - len(line))
            return found
        why = fault(value) if is_json else "it is not JSON"
        if why:
            raise _damaged(file, number, why)
        found.append(value)
    if lines and not lines[-1].endswith(b"\n"):  # killed before it wrote the end of the line
        with file.open("ab") as whole:
            whole.write(b"\n")
    return found


def _cut(file: Path, length: int) -> None:
    """Move what follows so many bytes of a file to the file beside it."""
    with file.open("r+b") as kept, file.with_name(file.name + CUT).open("ab") as cut:
        kept.seek(length)
        cut.write(kept.read().rstrip(b"\n") + b"\n")
        kept.truncate(length)


def _json(line: bytes) -> tuple[bool, Any]:
    """Return whether a line is JSON, and what it holds."""
    try:
        return True, json.loads(line)
    except (RecursionError, ValueError):
        return False, None


def _find_unreadable(folder: Path, workloads: list[Any], records: list[Any]) -> None:
    """Raise an error for the first line of a database, of right shape, that TVM cannot read."""
    modules = []
    for number, line in enumerate(workloads, 1):
        try:
            modules.append(Workload.from_json(line))
        except Exception as error:  # whatever a part of TVM's reader raises
            raise _damaged(folder / WORKLOADS, number, _said(error)) from error
    for number, line in enumerate(records, 1):
        try:
            TuningRecord.from_json(line[1], modules[line[0]])
        except Exception as error:  # as above
            raise _damaged(folder / RECORDS, number, _said(error)) from error


def _said(error: Exception) -> str:
    """Return the last line of a message of TVM's."""
    return "TVM says: " + (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _damaged(file: Path, number: int, why: str) -> ValueError:
    return ValueError(
        f"{file}, line {number} is not a record, {why}: the file is damaged; {_WAY_OUT[file.name]}"
    )
