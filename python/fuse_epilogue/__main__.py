"""``python -m fuse_epilogue``: see :mod:`fuse_epilogue.cli`."""

import sys

if __name__ == "__main__":
    try:
        from .cli import main, output

        code = main()
        output.finish()
    except KeyboardInterrupt:  # while it was loaded
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
