"""``run``: runs a compiled model once."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_bytes
from . import model_files, output
from .output import Answer


def run(given: argparse.Namespace) -> Answer:
    """Run the model and describe what it returns."""
    output.check_file("--out", given.out)
    if given.out and Path(given.out).suffix not in (".npy", ".npz"):
        raise output.InputError(f"--out '{given.out}': name it .npy for one result, else .npz")
    try:
        model = model_files.loaded(given)
    except model_files.Refused as error:
        return Answer(str(error), {"error": str(error)}, output.REFUSED)
    arrays = model_files.arrays(given, model.signature)
    several = len(model.signature.outputs) > 1
    if given.out and several and Path(given.out).suffix == ".npy":
        raise output.InputError(f"--out '{given.out}': the model has several results, use .npz")
    with model_files.named_indices():
        found = model(*arrays)
    results = {
        kind.name: np.asarray(each)
        for kind, each in zip(
            model.signature.outputs, found if model.signature.is_tuple else [found], strict=True
        )
    }
    if given.out:
        write_bytes(given.out, _as_numpy(results, Path(given.out).suffix))
    data = {name: _described(array) for name, array in results.items()}
    lines = [_line(name, facts) for name, facts in data.items()]
    if not given.arrays and model.signature.inputs:
        lines.insert(0, f"on random inputs, seed {given.seed}:")
    return Answer("\n".join(lines), {"results": data, "out": given.out})


def _as_numpy(results: dict[str, np.ndarray], suffix: str) -> bytes:
    made = io.BytesIO()
    if suffix == ".npy":
        np.save(made, next(iter(results.values())), allow_pickle=False)
    else:
        save: Any = np.savez  # its types take the arrays for its option
        save(made, **results)
    return made.getvalue()


def _described(array: np.ndarray) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.dtype.kind == "f":
        finite = array[np.isfinite(array)].astype("float64")
        facts["not_finite"] = int(array.size - finite.size)
    else:
        finite = array.ravel().astype("float64")
    if finite.size:
        facts |= {"min": float(finite.min()), "max": float(finite.max())}
        facts["mean"] = float(finite.mean())
    return facts


def _line(name: str, facts: dict[str, Any]) -> str:
    shape = ", ".join(map(str, facts["shape"]))
    text = f"{name}: {facts['dtype']}[{shape}]"
    if "min" in facts:
        text += f", {facts['min']:.6g} to {facts['max']:.6g}, mean {facts['mean']:.6g}"
    if facts.get("not_finite"):
        text += f", {facts['not_finite']} not finite"
    return text
