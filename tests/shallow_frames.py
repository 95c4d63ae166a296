"""Stacks of frames that read source text only where TVMScript looks at it.

`T.prim_func` takes `inspect.stack()`, which finds the source line of every caller; for frames
without a file it goes through all loaded modules. Under pytest, where a stack has fifty frames,
that took more time than parsing. TVM reads the lines of the first frames only, and the variables
of the others.
"""

from __future__ import annotations

import inspect
from types import FrameType

#: `is_defined_in_class` of TVM's parser looks at the third frame, for a decorated class.
WITH_SOURCE = 3


def getouterframes(frame: FrameType | None, context: int = 1) -> list[inspect.FrameInfo]:
    """Return what `inspect.getouterframes` does, without source lines from the fourth frame on."""
    found = []
    while frame is not None:
        code = frame.f_code
        if context and len(found) < WITH_SOURCE and not code.co_filename.startswith("<"):
            info = inspect.getframeinfo(frame, context)
            found.append(inspect.FrameInfo(frame, *info))
        else:
            name = code.co_filename
            found.append(inspect.FrameInfo(frame, name, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return found


def install() -> None:
    """Let `inspect.stack`, and with it TVM, use this."""
    inspect.getouterframes = getouterframes  # type: ignore[assignment]
