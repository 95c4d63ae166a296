"""Finds the reductions of a function, and fuses one of them.

Both are done by the core on the function's own tree: a schedule for every function of a module,
with TVM's flags brought up to date after every step, would take several times as long as all
proofs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from .. import _core
from .._arguments import Numerics
from ..report import FusionReport, report_from_core

#: Floats stay bit for bit unless the caller allows more.
DEFAULT_NUMERICS: Numerics = "exact"

_stringify = tvm_ffi.get_global_func("ffi.json.Stringify")

#: Function attributes that mark a function as scheduled.
_SCHEDULED = ("tirx.is_scheduled", "tir.is_scheduled", "tirx.kernel_launch_params")

#: Why a function is left alone, by what it is.
LEFT_ALONE = {
    "scheduled": "it has been scheduled: where its epilogues are computed has been decided",
    "opaque": "it has no blocks, so that what it reads and writes cannot be seen",
    "external": "its code is not in this module",
}


@dataclass(frozen=True)
class Balance:
    """Savings of a fusion, and its possible cost where the loops stay unscheduled.

    - `bytes_saved`, `elements_saved`: bytes of the intermediates that are gone or no longer held in
      full; None if a size is a symbol.
    - `rounds`: how often the program comes to the tails: once for every row, or for every element.
      None if that is a symbol.
    - `terms`: number of terms that the reduction combines for an element; None if that is a symbol.
    - `calls`: whether a tail calls a function of the C library, as for exp.
    """

    bytes_saved: int | None
    elements_saved: int | None
    rounds: int | None
    terms: int | None
    calls: bool


@dataclass(frozen=True)
class Fused:
    """A function after one of its reductions was fused, or as it was.

    - `func`: the very function that was passed where nothing can be fused.
    - `fusion`: without a certificate.
    """

    func: tirx.PrimFunc
    fusion: FusionReport
    balance: Balance


def reductions_of(func: tirx.PrimFunc) -> tuple[list[Any], str]:
    """Return the reductions of a function in program order, or why it is left alone.

    - Returns: the blocks directly in its root block; a key of :data:`LEFT_ALONE`, and no blocks,
      where the function must stay as it is. A function is scheduled if an attribute says so, or if
      it has a block inside of a block or a loop that is not serial.
    """
    attrs = func.attrs
    if attrs is not None and any(attrs.get(name) for name in _SCHEDULED):
        return [], "scheduled"
    found = _core.Reductions(func)
    return list(found["blocks"]), str(found["reason"])


def fuse_one(
    func: tirx.PrimFunc,
    reduction: Any,
    *,
    numerics: Numerics = DEFAULT_NUMERICS,
    distribute: bool = False,
    rows: bool = True,
) -> Fused:
    """Fuse one reduction of a function with what follows it, as ``sch.fuse_reduction_epilogue``.

    - `reduction` (SBlock): one of :func:`reductions_of` this function.
    - `distribute`: as of :func:`fuse_epilogue.fuse_reduction_epilogue`.
    - `rows`: whether tails work on the row of the innermost spatial loop, instead of on each
      element.
    - Returns: its ``fusion`` is not fusable where the primitive would refuse, with the reason.
    """
    raw = _core.FuseFunction(func, reduction, numerics == "exact", distribute, rows)
    # As one text: every single string of a map would be a call of its own.
    fusion = report_from_core(json.loads(_stringify(raw["report"], None)))
    balance = Balance(
        _known(raw["bytes"]),
        _known(raw["elements"]),
        _known(raw["rounds"]),
        _known(raw["terms"]),
        bool(raw["calls"]),
    )
    return Fused(raw["function"], fusion, balance)


def _known(number: int) -> int | None:
    """Return what the core has counted; None if it says -1, that something is a symbol."""
    return number if number >= 0 else None
