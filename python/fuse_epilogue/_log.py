"""The logger ``fuse_epilogue``, and the environment variable that shows its messages.

Every fusion, plan, pass and compiled model is logged at level INFO. ``FUSE_EPILOGUE_LOG=stderr``
prints these messages on standard error; any other value names a file, to which they are appended.
Without the variable nothing is printed unless the program configures :mod:`logging`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

ENVIRONMENT_VARIABLE = "FUSE_EPILOGUE_LOG"
#: Value of the variable for standard error.
STDERR = "stderr"

logger = logging.getLogger("fuse_epilogue")
logger.addHandler(logging.NullHandler())


def configure(environment: Mapping[str, str] = os.environ) -> logging.Handler | None:
    """Add the handler that the environment asks for.

    - Returns: None if the variable is not set, or empty.

    >>> configure({}) is None
    True
    """
    chosen = environment.get(ENVIRONMENT_VARIABLE)
    if not chosen:
        return None
    # A file is opened by its first message: a folder that is missing must not stop an import.
    handler: logging.Handler = (
        logging.StreamHandler() if chosen == STDERR else logging.FileHandler(chosen, delay=True)
    )
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


configure()
