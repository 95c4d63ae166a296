"""A folder of plans on disk, so that what was compiled once is not planned again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import tvm_ffi

from .._files import write

#: What an entry says it is of, and the version of the format.
FORMAT, FORMAT_VERSION = "fuse_epilogue plan", 1


class DatabaseError(ValueError):
    """An entry that is damaged; the message names its file and the reason."""


class Database:
    """Texts, as JSON, by what they were made for: a function, a target, options, versions.

    An entry is a file of its own, written whole or not at all, so that processes can share a
    folder. An entry of other versions of this package or of TVM is not found.

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

    def __init__(self, folder: str | Path) -> None:
        """Make the folder if it is missing."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, func: Any, target: Any, **options: Any) -> Any:
        """Return what was put for a function, None if nothing was.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
            Names of it do not matter.
        target : tvm.target.Target or str
        **options
            Further values that the text depends on, such as ``threads=2``.

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
                raise ValueError("it is of another function or target")
            if entry["sha256"] != _hash(body):
                raise ValueError("its value has another hash")
        except (ValueError, KeyError, TypeError) as error:
            raise DatabaseError(
                f"'{file}' is damaged or foreign ({type(error).__name__}: {error}); remove it"
            ) from error
        return body

    def put(self, func: Any, target: Any, value: Any, **options: Any) -> None:
        """Keep a value for a function; it replaces one that is there.

        Parameters
        ----------
        func, target, **options
            As for :meth:`get`.
        value
            Of what JSON has.

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

    def __len__(self) -> int:
        """Return how many entries there are, of any version."""
        return sum(1 for _ in self.folder.glob("*.json"))

    def _file(self, key: dict[str, Any]) -> Path:
        return self.folder / f"{_hash(key)[:32]}.json"


def _key(func: Any, target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return what an entry is found by. The structure's hash may differ between versions of TVM."""
    from .saved import versions

    nameless = func.without_attr("global_symbol") if hasattr(func, "without_attr") else func
    return {
        "function": f"{tvm_ffi.structural_hash(nameless, map_free_vars=True) & (2**64 - 1):016x}",
        "parameters": [str(param.ty) for param in func.params],
        "target": str(target),
        "options": options,
        "versions": versions(),
    }


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
