"""One process at a time tunes into a folder: two would give their functions the same numbers."""

from __future__ import annotations

import fcntl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: The file that is locked. It stays; the lock on it ends with the process, however that ends.
LOCK = "lock"


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Keep other processes from a folder, which is made if it is not there.

    - `shared`: keep those away only that tune: for reading.
    - Raises ValueError: another process has the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab")
    except OSError:
        if shared and folder.is_dir():  # no process writes where this one may not, or it is theirs
            yield
            return
        raise
    with file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"'{folder}' is in use: another process tunes into it or reads it, and two would "
                "mix up their records; wait until that has ended, or take another folder"
            ) from error
        except OSError as error:  # there are network file systems without locks
            warnings.warn(
                f"'{folder}' cannot be locked ({error}): tune into it from one process at a time",
                stacklevel=4,
            )
        yield
