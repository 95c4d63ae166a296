"""Databases of tuning records that survive being killed: a line per measurement, checked first.

TVM's ``JSONDatabase`` appends a line for every workload and for every record. A process that is
killed while it writes leaves half a line, and TVM then refuses the whole file, or glues the next
record to it. Opened here, such a line is put aside.
"""

from __future__ import annotations

import json
from pathlib import Path

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

#: What is cut off a file is appended to one of the same name with this behind it.
CUT = ".cut"


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
        A line that is not the last one is not JSON: the file is damaged, and not by a killed
        process.

    Example
    -------
    >>> from fuse_epilogue import tune
    >>> database = tune.open_database("tuned/layer1")
    >>> len(database)
    0
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (WORKLOADS, RECORDS):
        if (folder / name).exists():
            _mend(folder / name)
    return JSONDatabase(work_dir=str(folder))


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


def _mend(file: Path) -> None:
    """Move what follows the last whole line of a file elsewhere."""
    data = file.read_bytes()
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].splitlines()
    if whole == len(data) and lines and not _is_json(lines[-1]):
        whole -= len(lines.pop()) + 1
    for number, line in enumerate(lines, 1):
        if not _is_json(line):
            raise ValueError(
                f"{file}, line {number} is not a record: the file is damaged; take that line out, "
                "or begin in another folder"
            )
    if whole == len(data):
        return
    with open(file.with_name(file.name + CUT), "ab") as cut:
        cut.write(data[whole:].rstrip(b"\n") + b"\n")
    with open(file, "r+b") as kept:
        kept.truncate(whole)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
