"""A page for each committed result in ``benchmarks/results``, and their index.

Files that are not there have no page; a file that :data:`.results.SHOWN` does not know is shown as
it is, table by table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .results import SHOWN, ResultPage
from .rst import code, page, picture, prose, text, title, toctree
from .unknown import sections

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

_INDEX = """
Every figure here was read from the files in ``benchmarks/results`` when these pages were built. A
*prediction* is called one; everything else was measured, on the machine that its page names. A
ratio is given as its median with the quartiles of the repetitions in brackets.
"""

#: The sections of the index, each with its files.
_GROUPS = {
    "What it gains": ("fusion", "model_fusion", "models", "cascades", "tune"),
    "Single kernels on a CPU": (
        "conv1d_cpu",
        "conv1d_streams",
        "conv_layers",
        "operators",
        "quantised",
    ),
    "Predictions of the planner": ("kinds", "planner", "planner_znver5", "cuda_registers"),
    "Trainium": ("neuron_ladder", "neuron_planned", "neuron_public", "neuron_published"),
    "What it costs": ("primitive", "pass_time", "planning"),
    "Whether it is right": (
        *("fuzz", "fuzz_cascades", "fuzz_certificates", "fuzz_modules", "fuzz_schedules"),
        *("fuzz_cuda", "fuzz_neuron", "mutants", "tvm_tests"),
    ),
}


def pages(folder: Path = RESULTS) -> Mapping[str, str]:
    """Return the pages of all results in a folder.

    - Raises ValueError: a file is not the JSON of an object.
    """
    files = sorted(folder.glob("*.json"))
    contents = _contents([path.stem for path in files])
    found = {"benchmarks/index": page(".. _benchmarks:\n", title("Benchmarks"), _INDEX, *contents)}
    for path in files:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError(f"{path.name} is not a JSON object")
        found[f"benchmarks/{path.stem}"] = _page(path, data)
    return found


def _contents(stems: Sequence[str]) -> Iterator[str]:
    named = {stem for group in _GROUPS.values() for stem in group}
    rest = tuple(stem for stem in stems if stem not in named)
    for name, group in {**_GROUPS, "Others": rest}.items():
        if found := [stem for stem in group if stem in stems]:
            yield title(name, 1)
            yield toctree(found)


def _page(path: Path, data: Mapping[str, Any]) -> str:
    shown = SHOWN.get(path.stem, ResultPage(_name(path.stem), "", sections))
    chart = path.with_suffix(".svg")
    parts = [title(shown.title), shown.about]
    if chart.is_file():
        parts.append(picture(_relative(chart), f"{shown.title}, as a chart"))
    return page(*parts, *shown.show(data), title("Conditions", 1), _conditions(path, data))


def _name(stem: str) -> str:
    words = stem.replace("_", " ")
    return words[:1].upper() + words[1:]


def _conditions(path: Path, data: Mapping[str, Any]) -> str:
    """Return the lines about machine, versions and source of a result."""
    lines = []
    machine = data.get("machine")
    if isinstance(machine, Mapping):
        lines.append(("Machine", f"{text(machine.get('cpu'))}, {machine.get('cores')} cores"))
    if "threads" in data:
        threads = data["threads"]
        listed = threads if isinstance(threads, list) else [threads]
        lines.append(("Threads", ", ".join(map(str, listed))))
    if "target" in data:
        lines.append(("Target", code(data["target"])))
    if isinstance(data.get("versions"), Mapping):
        versions = (f"{name} {version}" for name, version in data["versions"].items())
        lines.append(("Versions", text(", ".join(versions))))
    if "date" in data:
        lines.append(("Date", str(data["date"])[:10]))
    if "commit" in data:
        lines.append(("Commit", code(str(data["commit"]))))
    if "depends_on" in data:
        lines.append(("Depends on", ", ".join(map(code, data["depends_on"]))))
    if "what" in data:
        lines.append(("Figures", prose(str(data["what"]))))
    lines.append(("File", f":download:`{path.name} <{_relative(path)}>`"))
    return "".join(f":{name}: {value}\n" for name, value in lines)


def _relative(path: Path) -> str:
    """Return a committed file as the pages of benchmarks name it, three folders below the root."""
    return f"../../../{path.parent.parent.name}/{path.parent.name}/{path.name}"
