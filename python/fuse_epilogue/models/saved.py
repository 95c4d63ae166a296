"""Compiled models and functions in files: a zip archive of machine code and a manifest.

In a file that ends in ``.so`` the machine code comes before an archive of the manifest alone: the
file is the shared library as well.

Nothing in the archive is executed before all of the manifest fits: the versions, the members, the
hash of the machine code. The machine code itself is a shared library, which runs with the rights of
the process that loads it: load only files that you would run as a program.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import tvm

from .._files import try_to_write, write_bytes
from .._printed import last_line
from .compiled import CompiledModel
from .compiled_function import CompiledFunction, Parameters
from .manifest import SavedModelError, signature_data, signature_from, versions
from .neuron import saved as neuron_saved
from .report import ModelReport
from .signature import Signature

#: What a manifest says it is of, and the version of the format.
FORMAT, FORMAT_VERSION = "fuse_epilogue model", 3
FUNCTION_FORMAT = "fuse_epilogue function"
_MANIFEST, _LIBRARY = "manifest.json", "model.so"
#: End of the name of a file that is a shared library as well.
LIBRARY_SUFFIX = ".so"


def save(model: CompiledModel | CompiledFunction, path: str | Path) -> None:
    """Save a model or a function; see :meth:`CompiledModel.save`."""
    save_entry(model, path, None)


def save_entry(
    model: CompiledModel | CompiledFunction, path: str | Path, key: dict[str, Any] | None
) -> None:
    """Save a model with what a database finds it by."""
    file = Path(path)
    try_to_write(file)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, _LIBRARY)
        _link(model, library)
        code = library.read_bytes()
    manifest = {
        "format": FORMAT if isinstance(model, CompiledModel) else FUNCTION_FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": versions(),
        "key": key,
        "target": model.target,
        "signature": signature_data(model.signature),
        **_particulars(model),
        "report": json.loads(model.report.to_json()),
        "bytes": len(code),
        "sha256": hashlib.sha256(code).hexdigest(),
    }

    before = code if file.suffix == LIBRARY_SUFFIX else b""
    data = io.BytesIO(before)
    with zipfile.ZipFile(data, "a" if before else "w") as archive:
        archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
        if not before:
            archive.writestr(_LIBRARY, code)
    write_bytes(file, data.getvalue())


def _particulars(model: CompiledModel | CompiledFunction) -> dict[str, Any]:
    """Return what only the manifest of a model has, or only that of a function."""
    if isinstance(model, CompiledModel):
        return {"sizes": list(model.sizes)}
    return {"written": model.parameters.written, "scalars": model.parameters.scalars}


def load(path: str | Path) -> Any:
    """Load what `save` of a compiled model, function or package for Trainium has saved.

    Its machine code runs in this process: load only files that you trust. A package for Trainium is
    a folder, from which nothing runs but on the interpreter and as TIR.

    Parameters
    ----------
    path : str or pathlib.Path

    Returns
    -------
    CompiledModel, CompiledFunction or NeuronPackage

    Raises
    ------
    OSError
        The file cannot be read.
    SavedModelError
        The file is not a saved model, is damaged, or was saved by another version of this package
        or of TVM, or for a processor whose instructions this one does not have.

    Example
    -------
    >>> import fuse_epilogue
    >>> fuse_epilogue.load("no_such_file.fe")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no_such_file.fe'
    """
    if Path(path).is_dir():
        if not Path(path, neuron_saved.MANIFEST).exists():
            raise SavedModelError(
                f"'{path}' is a folder without a '{neuron_saved.MANIFEST}': name the file of a "
                "model, or the folder of a package for Trainium"
            )
        return neuron_saved.load(Path(path))
    return _loaded(*_read(Path(path)))


def load_entry(path: Path, key: dict[str, Any]) -> CompiledModel:
    """Load a model that :func:`save_entry` has saved for a key.

    - Raises OSError: the file cannot be read.
    - Raises SavedModelError: as for :func:`load`; or it was saved for another key.
    """
    manifest, code = _read(path)
    if manifest.get("key") != key:
        raise SavedModelError(f"'{path}' is for another model, target or version")
    loaded = _loaded(manifest, code)
    if not isinstance(loaded, CompiledModel):
        raise SavedModelError(f"'{path}' is of a function, not of a model")
    return loaded


def _loaded(manifest: dict[str, Any], code: bytes) -> CompiledModel | CompiledFunction:
    signature = signature_from(manifest["signature"])
    report = ModelReport.from_json(json.dumps(manifest["report"]))
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, _LIBRARY)
        library.write_bytes(code)
        module = tvm.runtime.load_module(str(library))  # it stays mapped without the file
    if manifest["format"] == FUNCTION_FORMAT:
        parameters = _parameters_from(manifest, signature)
        return CompiledFunction(module, parameters, report, manifest["target"], library=code)
    sizes = _sizes_from(manifest["sizes"], signature)
    return CompiledModel(module, signature, report, manifest["target"], code, sizes=sizes)


def _link(model: CompiledModel | CompiledFunction, library: Path) -> None:
    try:
        model.export_library(library)
    except (RuntimeError, OSError) as error:
        last = last_line(error)
        raise RuntimeError(
            f"saving links a shared library with a C++ compiler, which failed: {last}"
        ) from error


def _read(file: Path) -> tuple[dict[str, Any], bytes]:
    """Return the manifest and the machine code of a file, if all of it is right."""
    data = file.open("rb")
    with data:
        try:
            with zipfile.ZipFile(data) as archive:
                names = sorted(archive.namelist())
                if names not in (sorted((_MANIFEST, _LIBRARY)), [_MANIFEST]):
                    raise SavedModelError(f"'{file}' is not a saved model: other files are in it")
                text = archive.read(_MANIFEST)
                code = archive.read(_LIBRARY) if _LIBRARY in names else None
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise SavedModelError(
                f"'{file}' is not a saved model, or is damaged: {error}"
            ) from error
    try:
        manifest = json.loads(text)
        if code is None:
            with file.open("rb") as data:
                code = data.read(int(manifest["bytes"]))
        _check(file, manifest, code)
        return manifest, code
    except SavedModelError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SavedModelError(
            f"'{file}' is damaged: its manifest is wrong ({type(error).__name__}: {error})"
        ) from error


def _check(file: Path, manifest: dict[str, Any], code: bytes) -> None:
    if manifest["format"] not in (FORMAT, FUNCTION_FORMAT):
        raise SavedModelError(f"'{file}' is not a saved model but '{manifest['format']}'")
    if manifest["format_version"] != FORMAT_VERSION:
        raise SavedModelError(
            f"'{file}' has version {manifest['format_version']} of the format, this package reads "
            f"{FORMAT_VERSION}: compile the model again"
        )
    for name, version in versions().items():
        if manifest["versions"][name] != version:
            raise SavedModelError(
                f"'{file}' was saved with {name} {manifest['versions'][name]}, this is {version}: "
                "compile the model again"
            )
    if len(code) != manifest["bytes"] or hashlib.sha256(code).hexdigest() != manifest["sha256"]:
        raise SavedModelError(f"'{file}' is damaged: its machine code does not match its hash")
    _check_processor(file, manifest["target"])
    signature = signature_from(manifest["signature"])
    if manifest["format"] == FUNCTION_FORMAT:
        _parameters_from(manifest, signature)
    else:
        _sizes_from(manifest["sizes"], signature)
    ModelReport.from_json(json.dumps(manifest["report"]))


def _check_processor(file: Path, target: str) -> None:
    """Refuse machine code whose instructions this processor does not have."""
    wanted = tvm.target.Target(json.loads(target))
    if wanted.kind.name == "cuda" and not tvm.runtime.enabled("cuda"):
        raise SavedModelError(
            f"'{file}' was compiled for CUDA, which this TVM is built without: load it with one "
            "that has CUDA"
        )
    here = tvm.target.Target("llvm")
    features = tvm.get_global_func("target.target_has_feature", allow_missing=True)
    system = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    if features is None or system is None or "mcpu" not in wanted.attrs:
        return
    host = tvm.target.Target({"kind": here.kind.name, "mcpu": system()})
    for feature in ("avx2", "fma", "avx512f", "avx512bw", "avx512vnni", "avx512bf16"):
        if features(feature, wanted) and not features(feature, host):
            raise SavedModelError(
                f"'{file}' was compiled for {wanted.attrs['mcpu']} with {feature}, which this "
                "processor does not have: compile the model here"
            )


def _parameters_from(manifest: dict[str, Any], signature: Signature) -> Parameters:
    places = [manifest["written"], manifest["scalars"]]
    count = len(signature.inputs)
    for place in places[0] + places[1]:
        if type(place) is not int or not 0 <= place < count:
            raise ValueError(f"{place} is not the place of one of {count} parameters")
    results = signature.outputs
    if results != signature.inputs[count - len(results) :]:
        raise ValueError("its results are not its last parameters")
    return Parameters(signature, tuple(places[0]), tuple(places[1]))


def _sizes_from(data: Any, signature: Signature) -> list[dict[str, int]]:
    for sizes in data:
        for name, size in sizes.items():
            if name not in signature.names or type(size) is not int or size < 1:
                raise ValueError(f"its sizes must be integers from 1, by dimension: {sizes}")
    return [dict(sizes) for sizes in data]
