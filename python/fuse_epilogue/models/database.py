"""A folder of compiled models and of plans, so that nothing is compiled or planned twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.target import Target

from .._files import write
from ..planner.measurement.profile import own_profile
from .manifest import SavedModelError, versions
from .saved import load_entry, save_entry

if TYPE_CHECKING:
    from .compiled import CompiledModel

#: What an entry says it is of, and the version of the format.
FORMAT, FORMAT_VERSION = "fuse_epilogue plan", 2


@tvm_ffi.register_error
class DatabaseError(ValueError):
    """An entry that is damaged; the message names its file and the reason."""


class Database:
    """Compiled models, and values as JSON, by what they were made for.

    That is a model with its weights or a function, and a target, options and versions of this
    package and of TVM: what other versions have put is not found. An entry is a file of its own,
    written whole or not at all, so that processes can share a folder. The machine code of a model
    runs: use only folders to which no one writes whom you would not trust with your programs.

    Parameters
    ----------
    folder : str or pathlib.Path
        Made if it is missing.

    Raises
    ------
    OSError
        The folder cannot be made.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> from fuse_epilogue.models import Database
    >>> database = Database("plans")
    >>> func = workloads.matmul(8, 8, 8)
    >>> database.put(func, "llvm", {"kind": "contraction"})
    >>> database.get(func, "llvm")
    {'kind': 'contraction'}
    >>> database.get(func, "cuda") is None
    True
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Make the folder if it is missing."""
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"'{folder}' is a file: a database is a folder")
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, func: Any, target: Any, **options: Any) -> Any:
        """Return what was put for a function, None if nothing was.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
            Its name and those of its variables do not matter.
        target : tvm.target.Target or str
        **options
            Further values that the stored value depends on, such as ``threads=2``.

        Returns
        -------
        object
            A copy of the value.

        Raises
        ------
        DatabaseError
            The entry is damaged.

        Example
        -------
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.models import Database
        >>> database = Database("plans")
        >>> database.put(workloads.matmul(4, 4, 4), "llvm", [8, 6], threads=2)
        >>> database.get(workloads.matmul(4, 4, 4), "llvm", threads=2)
        [8, 6]
        """
        key = _key(func, target, options)
        file = self._file(key)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise DatabaseError(f"'{file}' cannot be read: {error}; remove it") from error
        try:
            entry = json.loads(text)
            body = entry["value"]
            if entry["format"] != FORMAT or entry["format_version"] != FORMAT_VERSION:
                raise ValueError(f"it is '{entry['format']}', version {entry['format_version']}")
            if entry["key"] != key:
                raise ValueError("it is for another function or target")
            if entry["sha256"] != _hash(body):
                raise ValueError("its value does not match its hash")
        except (ValueError, KeyError, TypeError) as error:
            raise DatabaseError(
                f"'{file}' is damaged, or was written by another program "
                f"({type(error).__name__}: {error}); remove it"
            ) from error
        return body

    def put(self, func: Any, target: Any, value: Any, **options: Any) -> None:
        """Keep a value for a function; it replaces one that is there.

        Parameters
        ----------
        func, target, **options
            As for :meth:`get`.
        value
            Value of one of JSON's types.

        Raises
        ------
        TypeError
            `value` is not.
        OSError
            The folder cannot be written.

        Example
        -------
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.models import Database
        >>> database = Database("plans")
        >>> database.put(workloads.matmul(4, 4, 4), "llvm", [8, 6], threads=2)
        >>> database.get(workloads.matmul(4, 4, 4), "llvm", threads=2)
        [8, 6]
        """
        key = _key(func, target, options)
        entry = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "key": key,
            "sha256": _hash(value),
            "value": value,
        }
        write(self._file(key), json.dumps(entry, indent=1) + "\n")

    def get_model(self, mod: ir.IRModule, target: Any, **options: Any) -> CompiledModel | None:
        """Return a compiled model, None if it was not put.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            The model as :func:`.import_model` returns it, with its weights.
        target : tvm.target.Target or str
        **options
            Further values that the machine code depends on, such as ``threads=2``.

        Returns
        -------
        CompiledModel or None

        Raises
        ------
        DatabaseError
            The entry is damaged, or is of another model.

        Example
        -------
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.models import Database, import_model
        >>> mod = import_model(workloads.matmul(4, 4, 4))
        >>> Database("models").get_model(mod, "llvm") is None
        True
        """
        key = _model_key(mod, target, options)
        file = self._file(key, ".fe")
        try:
            return load_entry(file, key)
        except FileNotFoundError:
            return None
        except (OSError, SavedModelError) as error:
            raise DatabaseError(f"{error}; remove it") from error

    def put_model(
        self, mod: ir.IRModule, target: Any, model: CompiledModel, **options: Any
    ) -> None:
        """Keep a compiled model; it replaces one that is there.

        Parameters
        ----------
        mod, target, **options
            As for :meth:`get_model`.
        model : CompiledModel

        Raises
        ------
        OSError
            The folder cannot be written.
        RuntimeError
            There is no C++ compiler to link with.

        Example
        -------
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.models import Database, import_model
        >>> func = workloads.matmul(4, 4, 4)
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": func}))
        >>> database = Database("models")
        >>> database.put_model(import_model(func), "llvm", model)
        >>> database.get_model(import_model(func), "llvm").signature == model.signature
        True
        """
        key = _model_key(mod, target, options)
        save_entry(model, self._file(key, ".fe"), key)

    def __str__(self) -> str:
        """Return the folder."""
        return f"the database '{self.folder}'"

    def __len__(self) -> int:
        """Return how many entries there are, of any version."""
        return sum(1 for each in self.folder.iterdir() if each.suffix in (".json", ".fe"))

    def _file(self, key: dict[str, Any], suffix: str = ".json") -> Path:
        return self.folder / f"{_hash(key)[:32]}{suffix}"


def _key(func: Any, target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return what an entry is found by. The structure's hash may differ between versions of TVM."""
    nameless = func.without_attr("global_symbol") if hasattr(func, "without_attr") else func
    return {
        "function": f"{tvm_ffi.structural_hash(nameless, map_free_vars=True) & (2**64 - 1):016x}",
        "parameters": [str(param.ty) for param in func.params],
        "target": str(target),
        "options": options,
        "versions": versions(),
        **_calibrated(target),
    }


def _model_key(mod: ir.IRModule, target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a model is found by: its structure, and all bytes of its weights."""
    weights = hashlib.sha256()

    def add(node: Any) -> None:
        if isinstance(node, GenericConst):
            array = node.value.numpy()
            weights.update(f"{array.dtype}{array.shape}".encode())
            weights.update(array.data if array.flags.c_contiguous else array.tobytes())

    # In the order of names: a module's own may differ from run to run.
    for var in sorted(mod.functions, key=lambda each: str(each.name_hint)):
        if isinstance(mod[var], relax.Function):
            relax.analysis.post_order_visit(mod[var], add)
    # The structure's hash alone is made for tables, whose entries are compared. The text has of
    # constants the types only, and of inputs the names as well.
    text = mod.script(show_meta=False)
    structure = tvm_ffi.structural_hash(mod, skip_tensor_content=True)
    return {
        "structure": f"{structure & (2**64 - 1):016x}",
        "module": hashlib.sha256(text.encode()).hexdigest(),
        "weights": weights.hexdigest(),
        "target": str(target),
        "options": options,
        "versions": versions(),
        **_calibrated(target),
    }


def _calibrated(target: Any) -> dict[str, str]:
    """Return what tells a processor's profile of this machine from others; nothing without one."""
    name = str(target.attrs.get("mcpu", "")) if isinstance(target, Target) else ""
    file = own_profile(name)
    if not name or not file.is_file():
        return {}
    return {"profile": hashlib.sha256(file.read_bytes()).hexdigest()}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
