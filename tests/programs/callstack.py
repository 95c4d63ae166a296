"""Parsing TVMScript while modules are being imported, three times faster.

TVM's parser asks for the whole call stack at each function. Python looks for the module of every
frame, and for the frames of the import system, which have no source file, it searches all modules
there are, each time. Here those frames are entered into the table it consults before searching.
"""

import inspect
import os

_MODULES_BY_FILE: dict[str, str] = getattr(inspect, "modulesbyfile", {})
for _name in ("importlib._bootstrap", "importlib._bootstrap_external"):
    _MODULES_BY_FILE[os.path.normcase(os.path.abspath(f"<frozen {_name}>"))] = _name
