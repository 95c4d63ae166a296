"""A plugin of pytest that writes each outcome to a file at once: the process may not survive.

One JSON value for each line: ``{"session": ...}`` at the start, ``{"start": test}`` before a test,
``{"test": ..., "outcome": ...}`` after it, ``{"finished": true}`` at the end. Tests that the file
has already are not run again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(os.environ["TVM_TESTS_RECORD"])
ONLY = os.environ.get("TVM_TESTS_ONLY")

_pending: dict[str, dict[str, Any]] = {}


def _write(entry: dict[str, Any]) -> None:
    with RECORD.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def _seen() -> set[str]:
    entries = [json.loads(line) for line in RECORD.read_text().splitlines()]
    return {entry["test"] for entry in entries if "test" in entry}


def pytest_sessionstart() -> None:
    import tvm
    import tvm_moved_names

    tvm_moved_names.provide()
    extension = sys.modules.get("fuse_epilogue")
    _write(
        {
            "session": {
                "extension": extension is not None,
                "tvm": tvm.__version__,
                "fuse": tvm.s_tir.Schedule.fuse_reduction_epilogue.__module__,
            }
        }
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen = _seen()
    only = None if ONLY is None else set(json.loads(ONLY))
    items[:] = [
        item for item in items if item.nodeid not in seen and (only is None or item.nodeid in only)
    ]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome == "passed":
        return
    outcome = "collection failed" if report.outcome == "failed" else "skipped"
    _write({"test": report.nodeid, "outcome": outcome, "message": str(report.longrepr)[-400:]})


def pytest_runtest_logstart(nodeid: str) -> None:
    _pending[nodeid] = {"outcome": "passed", "message": ""}
    _write({"start": nodeid})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:  # noqa: ANN401
    report = (yield).get_result()
    entry = _pending[item.nodeid]
    if report.failed:
        kind = "failed" if report.when == "call" else f"{report.when} failed"
        raised = call.excinfo.typename if call.excinfo else "no exception"
        entry["outcome"] = f"{kind}: {raised}"
        # The ends: the first line names what failed, the last ones why, in many of TVM's errors.
        text = str(call.excinfo.value) if call.excinfo else str(report.longrepr)
        entry["message"] = text if len(text) < 800 else f"{text[:200]} ... {text[-600:]}"
    elif report.skipped and entry["outcome"] == "passed":
        entry["outcome"] = "failed as expected" if hasattr(report, "wasxfail") else "skipped"
        entry["message"] = str(getattr(report, "wasxfail", call.excinfo and call.excinfo.value))


def pytest_runtest_logfinish(nodeid: str) -> None:
    _write({"test": nodeid, **_pending.pop(nodeid)})


def pytest_sessionfinish() -> None:
    _write({"finished": True})
