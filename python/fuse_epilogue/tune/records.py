"""Databases of tuning records that survive being killed: a line per measurement, checked first.

TVM's ``JSONDatabase`` appends a line for every workload and for every record. A process that is
killed while it writes leaves half a line, and TVM then refuses the whole file, or glues the next
record to it. Opened here, such a line is put aside. Any other line that TVM cannot read is named:
TVM itself names none, and of some it dies.
"""

from __future__ import annotations

import json
import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord, Workload

from .faults import record_fault, workload_fault
from .lock import locked

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

#: Suffix of the file to which the lines cut off a file are appended.
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
    OSError
        A file cannot be read, or has to be written and cannot be: it is missing, or ends in half
        a line.

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
    for name in (WORKLOADS, RECORDS):
        if not (folder / name).exists():  # TVM would not say why it cannot
            _append(folder / name, b"")
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


def commit_workload(database: JSONDatabase, mod: IRModule) -> Workload:
    """Return the workload of a module, which is in its file.

    - Raises OSError: the record is not, see :func:`_appended`.
    """
    if database.has_workload(mod):
        return database.commit_workload(mod)
    with _appended(Path(database.path_workload)):
        return database.commit_workload(mod)


def commit(database: JSONDatabase, record: TuningRecord) -> None:
    """Append a record to its file.

    - Raises OSError: the record is not there, see :func:`_appended`.
    """
    with _appended(Path(database.path_tuning_record)):
        database.commit_tuning_record(record)


def _mended(file: Path, fault: Callable[[Any], str]) -> list[Any]:
    """Return what the lines of a file hold; half a last line is moved elsewhere.

    - Raises ValueError: TVM cannot read another line.
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
        _append(file, b"\n")
    return found


def _cut(file: Path, length: int) -> None:
    """Move the rest of a file, after n bytes, to the file beside it."""
    with file.open("r+b") as kept:
        kept.seek(length)
        _append(file.with_name(file.name + CUT), kept.read().rstrip(b"\n") + b"\n")
        kept.truncate(length)


def _append(file: Path, data: bytes) -> None:
    """Append to a file; the error of a full disk names it."""
    try:
        with file.open("ab") as appended:
            appended.write(data)
    except OSError as error:
        raise _unwritable(file, error) from error


@contextmanager
def _appended(file: Path) -> Iterator[None]:
    """Have TVM append a line to a file: it does not look whether all of it is there in the end.

    - Raises OSError: the record is not, or the file is gone or may not be written. The file is then
      as it was before.
    """
    if _torn(file):  # by another process: this one mends what it tears
        _mended(file, lambda line: "")
    before = file.stat().st_size
    yield
    if file.stat().st_size == before or _torn(file):
        os.truncate(file, before)
        raise OSError(
            f"{file} cannot be written, and its disk may be full: the new line is lost, and the "
            "earlier ones are kept; free some space and run the same again, which resumes"
        )


def _torn(file: Path) -> bool:
    """Return whether a file, which can be written, ends in the middle of a line."""
    try:
        with file.open("r+b") as opened:
            if opened.seek(0, os.SEEK_END) == 0:
                return False
            opened.seek(-1, os.SEEK_END)
            return opened.read() != b"\n"
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> OSError:
    return OSError(f"{file} cannot be written: {error.strerror}")


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
    # What Python's reader of JSON takes and TVM's does not, as a NaN, 1e999 or a "\\u0000".
    whole, rows = ((folder / name).read_bytes().splitlines(True) for name in (WORKLOADS, RECORDS))
    _check_lines(folder / WORKLOADS, whole, lambda some: _refusal(some, []))
    _check_lines(folder / RECORDS, rows, lambda some: _refusal(whole, some))


def _check_lines(file: Path, lines: list[bytes], refusal: Callable[[list[bytes]], str]) -> None:
    """Raise an error for the first line of a file against which TVM says something."""
    # The shortest beginning that is refused ends with it.
    end = bisect_left(range(len(lines) + 1), True, key=lambda n: bool(refusal(lines[:n])))
    if end <= len(lines):
        raise _damaged(file, end, refusal(lines[end - 1 : end]))


def _refusal(workloads: list[bytes], records: list[bytes]) -> str:
    """Return what TVM says against a database of these lines; empty if it reads them."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / WORKLOADS).write_bytes(b"".join(workloads))
        (Path(name) / RECORDS).write_bytes(b"".join(records))
        try:
            JSONDatabase(work_dir=name)
        except Exception as error:  # whatever a part of TVM's reader raises
            return _said(error)
    return ""


def _said(error: Exception) -> str:
    """Return the last line of a message of TVM's."""
    return "TVM says: " + (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _damaged(file: Path, number: int, why: str) -> ValueError:
    return ValueError(
        f"{file}, line {number} is not a record, {why}: the file is damaged; {_WAY_OUT[file.name]}"
    )
