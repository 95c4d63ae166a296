"""Finds and loads the C++ library, once per process.

The library is in the package, in ``fuse_epilogue/lib``. The environment variable
``FUSE_EPILOGUE_LIBRARY`` names another file to load in its place, for example one that was built
with sanitizers (``make sanitize`` does so). Only tvm_ffi is imported here, not TVM.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import tvm_ffi

ENVIRONMENT_VARIABLE = "FUSE_EPILOGUE_LIBRARY"

_PACKAGED = Path(__file__).resolve().parent / "lib" / "libfuse_epilogue.so"


def find() -> Path:
    """Return the path of the library that `load` loads.

    - Returns: the file that ``FUSE_EPILOGUE_LIBRARY`` names, if it is set and not empty, else the
      package's own.
    - Raises ImportError: if there is no such file.
    """
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        path = Path(chosen).resolve()
        if not path.is_file():
            raise ImportError(
                f"fuse_epilogue: there is no library at {path}, which the environment variable "
                f"{ENVIRONMENT_VARIABLE} names. Correct or unset it."
            )
        return path
    if not _PACKAGED.is_file():
        raise ImportError(
            f"fuse_epilogue: its C++ library is missing ({_PACKAGED}). It is built when the "
            "package is installed: run `pip install .` in the source folder. A library that is "
            f"elsewhere can be named in the environment variable {ENVIRONMENT_VARIABLE}."
        )
    return _PACKAGED


@functools.cache
def load() -> tvm_ffi.Module:
    """Load the C++ library; a second call returns the same module.

    The module is kept for the rest of the process: what its static initialisers registered with
    tvm-ffi must never dangle.

    Returns
    -------
    tvm_ffi.Module
        The loaded library.

    Raises
    ------
    ImportError
        If the library is missing, or was built for another tvm-ffi than the one installed.

    Examples
    --------
    >>> from fuse_epilogue import _lib
    >>> _lib.load() is _lib.load()
    True
    """
    path = find()
    try:
        return tvm_ffi.load_module(path, keep_module_alive=True)
    except (RuntimeError, OSError) as err:
        raise ImportError(
            f"fuse_epilogue: {path} cannot be loaded with apache-tvm-ffi {tvm_ffi.__version__}. "
            f"Build it again for the installed release: `pip install .`. The loader says: {err}"
        ) from err
