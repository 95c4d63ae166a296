"""``python -m fuse_epilogue`` and the script ``fuse-epilogue``: see :mod:`fuse_epilogue.cli`."""

import sys


def main() -> int:
    """Run the command line; a Ctrl-C while it is loaded is one like any other.

    - Returns: the exit code.
    """
    try:
        from .cli import main as run
        from .cli import output

        code = run()
        output.finish()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    return code


if __name__ == "__main__":
    sys.exit(main())
