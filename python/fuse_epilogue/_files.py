"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: str | Path, text: str) -> None:
    """Write a file whole or not at all: an interrupted command leaves what was there.

    For a link, its target is written. Anything that is not a regular file, such as ``/dev/stdout``,
    is written to directly.

    - Raises OSError: the folder is missing or cannot be written, or the path is that of a folder.
    """
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file as :func:`write` does.

    - Raises OSError: as :func:`write`.
    """
    if _is_special(Path(path)):
        Path(path).write_bytes(data)
        return
    target = Path(path).resolve()
    descriptor, name = _beside(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def try_to_write(path: str | Path) -> None:
    """Do nothing where :func:`write` can write; what is there stays as it is.

    - Raises OSError: as :func:`write` would, after all that it is to write was computed.
    """
    if _is_special(Path(path)):
        return
    descriptor, name = _beside(Path(path).resolve())
    os.close(descriptor)
    Path(name).unlink()


def _is_special(target: Path) -> bool:
    """Return whether there is something that is neither a file nor a folder: a device, a pipe.

    Asked of the name as it is: a shell's ``/dev/fd/63`` is a pipe, which has no path.
    """
    return target.exists() and not target.is_file() and not target.is_dir()


def _beside(target: Path) -> tuple[int, str]:
    """Return an open file in the folder of another one, to take its place."""
    if target.is_dir():
        raise IsADirectoryError(f"'{target}' is a folder: name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder '{target.parent}' for '{target.name}'")
    return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
