"""Packages for Trainium in folders of files that one can read, and change by hand.

Nothing in a folder is executed when it is loaded: kernels are interpreted, and functions for the
processor are TIR, which is compiled when the model is called.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ...neuron import KernelError
from ...neuron.kernel import Kernel
from ...neuron.machine import MACHINES
from ...neuron.values import numpy_dtype
from ..manifest import SavedModelError, signature_data, signature_from, versions
from ..report import ModelReport
from ..signature import ArrayType
from .glue import glue
from .graph import Graph, Step
from .package import NeuronPackage

#: What a manifest says it is of, and the version of the format.
FORMAT, FORMAT_VERSION = "fuse_epilogue package for Trainium", 2
MANIFEST = "manifest.json"
_WEIGHTS, _REPORT = "weights.npz", "report.html"


def save(package: NeuronPackage, folder: Path) -> None:
    """Save a package; see :meth:`NeuronPackage.save`."""
    if folder.exists():
        raise FileExistsError(f"'{folder}' exists already: name a new folder")
    target = folder.resolve()
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        _write(package, made, folder)
        made.chmod(0o755)
        made.replace(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _write(package: NeuronPackage, into: Path, folder: Path) -> None:
    graph = package.graph
    (into / "kernels").mkdir()
    (into / "kernels" / "__init__.py").write_text('"""Kernels in NKI, one in each file."""\n')
    for name, kernel in package.kernels.items():
        (into / "kernels" / f"{name}.py").write_text(kernel.source, encoding="utf-8")
    if graph.functions:
        (into / "host").mkdir()
    for name, func in graph.functions.items():
        (into / "host" / f"{name}.json").write_text(tvm.ir.save_json(func))
        (into / "host" / f"{name}.py").write_text(func.script(), encoding="utf-8")
    store: Any = np.savez  # its types take the arrays for its option
    store(into / _WEIGHTS, **{name: _bits(data) for name, data in graph.weights.items()})
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": versions(),
        "machine": package.machine,
        "signature": signature_data(package.signature),
        "inputs": graph.inputs,
        "results": graph.results,
        "arrays": {each.name: [each.shape, each.dtype] for each in graph.arrays.values()},
        "weights": list(graph.weights),
        "steps": [[step.function, step.inputs, step.outputs] for step in graph.steps],
        "kernels": list(package.kernels),
        "host": list(graph.functions),
        "report": json.loads(package.report.to_json()),
    }
    (into / MANIFEST).write_text(_readable(manifest))
    (into / _REPORT).write_text(package.report.to_html(), encoding="utf-8")
    names = {name: kernel.name for name, kernel in package.kernels.items()}
    title = f"{folder.name}, a model for {package.machine}"
    for name, text in glue(graph, names, title, str(folder)).items():
        (into / name).write_text(text, encoding="utf-8")


def _readable(manifest: dict[str, Any]) -> str:
    """Return JSON with a line for each step, array and so on."""
    lines = []
    for key, value in manifest.items():
        if isinstance(value, (list, tuple)) and value:
            rows = ",\n".join(f"  {json.dumps(each)}" for each in value)
            lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        elif isinstance(value, dict) and value:
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _bits(data: np.ndarray) -> np.ndarray:
    """Return an array of a type that numpy has; others as their bits."""
    return data if data.dtype.kind in "fiub" else data.view(f"u{data.dtype.itemsize}")


def load(folder: Path) -> NeuronPackage:
    """Load a package that :meth:`NeuronPackage.save` has saved.

    - Raises OSError: a file cannot be read.
    - Raises SavedModelError: the folder is not such a package, or is damaged.
    """
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise SavedModelError(f"'{file}' belongs to a '{manifest['format']}', not to a package")
        if manifest["format_version"] != FORMAT_VERSION:
            raise SavedModelError(
                f"'{folder}' has version {manifest['format_version']} of the format, this package "
                f"reads {FORMAT_VERSION}: compile the model again"
            )
        return _package(folder, manifest)
    except SavedModelError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, KernelError) as error:
        raise SavedModelError(
            f"'{folder}' is damaged, or not a package ({type(error).__name__}: {error})"
        ) from error


def _package(folder: Path, manifest: dict[str, Any]) -> NeuronPackage:
    if manifest["machine"] not in MACHINES:
        raise ValueError(f"there is no machine {manifest['machine']!r}")
    arrays = {
        _identifier(name): ArrayType(name, tuple(map(int, shape)), str(dtype))
        for name, (shape, dtype) in manifest["arrays"].items()
    }
    steps = tuple(
        Step(function and _identifier(function), tuple(inputs), tuple(outputs))
        for function, inputs, outputs in manifest["steps"]
    )
    host = {
        _identifier(name): tvm.ir.load_json((folder / "host" / f"{name}.json").read_text())
        for name in manifest["host"]
    }
    graph = Graph(
        tuple(manifest["inputs"]),
        tuple(manifest["results"]),
        arrays,
        _weights(folder / _WEIGHTS, manifest["weights"], arrays),
        steps,
        host,
    )
    kernels = {
        name: _kernel(folder / "kernels" / f"{_identifier(name)}.py", name, graph)
        for name in manifest["kernels"]
    }
    _check(graph, set(kernels) | set(host))
    report = ModelReport.from_json(json.dumps(manifest["report"]))
    signature = signature_from(manifest["signature"])
    return NeuronPackage(signature, report, manifest["machine"], graph, kernels)


def _identifier(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{name!r} is not a name")
    return name


def _weights(file: Path, names: list[str], arrays: dict[str, ArrayType]) -> dict[str, np.ndarray]:
    found = {}
    with np.load(file, allow_pickle=False) as stored:
        for name in names:
            data = stored[name]
            wanted = numpy_dtype(arrays[name].dtype)
            data = data if data.dtype == wanted else data.view(wanted)
            if data.shape != arrays[name].shape:
                raise ValueError(f"the weight '{name}' has shape {data.shape}")
            found[name] = data
    return found


def _kernel(file: Path, function: str, graph: Graph) -> Kernel:
    """Return a kernel, which may have been changed by hand, with the arrays it is called with."""
    step = next(step for step in graph.steps if step.function == function)
    text = file.read_text(encoding="utf-8")
    parameters = Kernel(text).parameters
    types = [graph.arrays[name] for name in step.inputs]
    inputs = {
        parameter: (each.shape or (1,), "int32" if each.dtype == "int64" else each.dtype)
        for parameter, each in zip(parameters, types, strict=True)
    }
    return Kernel(text, inputs)


def _check(graph: Graph, functions: set[str]) -> None:
    """Refuse steps that call no kernel, or read results not computed before them."""
    known = {*graph.inputs, *graph.weights}
    for step in graph.steps:
        if step.function and step.function not in functions:
            raise ValueError(f"a step calls '{step.function}', which the package does not have")
        missing = [name for name in step.inputs if name not in known]
        if missing:
            raise ValueError(f"a step reads '{missing[0]}' before it is computed")
        known |= set(step.outputs)
    if not known <= set(graph.arrays) or not set(graph.results) <= known:
        raise ValueError("an array has no type, or a result is not computed")
