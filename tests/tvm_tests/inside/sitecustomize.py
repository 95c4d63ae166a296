"""Hide the extension's entry point from TVM, in every process of a run that asks for it.

`TVM_DEVICE_BACKEND_AUTOLOAD=0` would hide TVM's own intrinsics for CUDA, too. A plugin of pytest
would not reach the processes that MetaSchedule starts; Python imports this module in all of them.
"""

from __future__ import annotations

import importlib.metadata
import os

_entry_points = importlib.metadata.entry_points


def _without_extension(**selected: str) -> importlib.metadata.EntryPoints:
    found = _entry_points(**selected)
    if selected.get("group") != "tvm.backends":
        return found
    kept = [entry for entry in found if entry.value.partition(":")[0] != "fuse_epilogue"]
    return importlib.metadata.EntryPoints(kept)


if os.environ.get("TVM_TESTS_HIDE") == "1":
    importlib.metadata.entry_points = _without_extension
