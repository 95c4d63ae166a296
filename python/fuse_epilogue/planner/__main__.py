"""Deprecated: ``python -m fuse_epilogue calibrate`` is the same command."""

import sys

from ..__main__ import main

if __name__ == "__main__":
    sys.exit(main())
