"""Scheduled functions as values of JSON's types, for a database, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import tvm
from tvm import tirx

from .cpu.contraction.panels import PanelPacker
from .cpu.contraction.winograd.packing import WinogradPacker
from .scheduled import Packing, Scheduled, Way

#: What packs constants, by the name that a value has for it.
PACKERS: dict[str, type] = {"panels": PanelPacker, "winograd": WinogradPacker}


def to_data(scheduled: Scheduled) -> dict[str, Any] | None:
    """Return a scheduled function as a value, None if a packing of it cannot be written."""
    packings: dict[str, Any] = {}
    for place, packing in scheduled.packing.items():
        name = next((n for n, kind in PACKERS.items() if type(packing.pack) is kind), None)
        if name is None:
            return None
        pack = {"packer": name, "options": _listed(asdict(packing.pack))}  # type: ignore[call-overload]
        packings[str(place)] = {"shape": list(packing.shape), "dtype": packing.dtype, **pack}
    return {
        "kind": scheduled.kind,
        "fusion": scheduled.fusion,
        "predicted_s": scheduled.predicted_s,
        "trials": scheduled.trials,
        "why": scheduled.why,
        "ways": [asdict(way) for way in scheduled.ways],
        "packing": packings,
        "func": tvm.ir.save_json(scheduled.func),
    }


def from_data(data: Mapping[str, Any]) -> Scheduled:
    """Return the scheduled function that :func:`to_data` wrote.

    - Raises ValueError: the value is something else.
    """
    try:
        func = tvm.ir.load_json(data["func"])
        if not isinstance(func, tirx.PrimFunc):
            raise TypeError(f"its function is a {type(func).__name__}, not a PrimFunc")
        packings = {
            int(place): Packing(
                tuple(each["shape"]),
                str(each["dtype"]),
                PACKERS[each["packer"]](**_tuples(each["options"])),
            )
            for place, each in data["packing"].items()
        }
        return Scheduled(
            func,
            str(data["kind"]),
            str(data["fusion"]),
            float(data["predicted_s"]),
            packings,
            int(data["trials"]),
            str(data["why"]),
            tuple(Way(**each) for each in data["ways"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"not a scheduled function ({type(error).__name__}: {error})") from error


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(each) for name, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, tuple | list) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value
