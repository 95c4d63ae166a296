"""Options that several commands have, and the numbers and words that options take.

Nothing here imports TVM: the words are repeated here, and a test compares them with what
the package takes.
"""

from __future__ import annotations

import argparse

#: The machines of :data:`fuse_epilogue.neuron.machine.MACHINES`.
MACHINES = ("trn1", "trn2", "trn3")
#: What --numerics takes, and what it is without it: as the pass.
NUMERICS = ("reassociate", "exact")
DEFAULT_NUMERICS = "exact"
#: What --policy takes: the words of :data:`fuse_epilogue.transform.POLICIES`.
POLICIES = ("planner", "always", "never")
#: What --target takes, for the help of the commands.
TARGETS = (
    "host: this machine; h100: a GPU by name; trn1, trn2, trn3: AWS Trainium; or a target of TVM: "
    "a kind such as llvm, or "
    """JSON such as '{"kind": "cuda", "arch": "sm_90"}'"""
)


#: INPUT of the commands that run a model, for their help.
SAVED = """INPUT is a model saved by `compile` (.so or .fe; it contains
machine code that is run: use only files that you trust), or any INPUT of `compile`, which is then
compiled first."""


def natural(text: str) -> int:
    """Return a number from 0, for the parser, which reports any other value.

    >>> natural("24")
    24
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a whole number from 0, not '{text}'")
    return int(text)


def add_numerics(parser: argparse.ArgumentParser) -> None:
    """Add --numerics, as :class:`fuse_epilogue.transform.FuseReductionEpilogue` takes it."""
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        default=DEFAULT_NUMERICS,
        help="exact: every float is equal bit for bit; reassociate: a floating sum may also start "
        "from the bias added to it, which changes the order of rounding (default: %(default)s)",
    )


def add_compiling(parser: argparse.ArgumentParser) -> None:
    """Add the options of compiling a model."""
    parser.add_argument("--target", default="host", help=TARGETS + " (default: host)")
    parser.add_argument(
        "--threads",
        metavar="N",
        type=positive,
        help="number of threads of parallel loops (default: the target's cores)",
    )
    parser.add_argument(
        "--size",
        metavar="NAME=N",
        type=_named_size,
        action="append",
        default=[],
        help="set a named size of the inputs, such as batch=1",
    )
    parser.add_argument(
        "--sizes",
        metavar="NAME=N[,N]",
        type=_named_sizes,
        action="append",
        default=[],
        help="compile kernels for these values of a named size; other values still run",
    )
    parser.add_argument(
        "--measure",
        metavar="SECONDS",
        type=_seconds,
        help="time alternative schedules for SECONDS, the slowest functions first",
    )
    parser.add_argument(
        "--winograd",
        action="store_true",
        help="allow Winograd's algorithms for convolutions: rounding differs from that of sums of "
        "products, and an infinity or a NaN spreads over a tile",
    )
    parser.add_argument(
        "--database",
        metavar="FOLDER",
        help="cache compiled functions in FOLDER (their machine code is run: use only a "
        "folder that you trust)",
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what a model is called with."""
    parser.add_argument(
        "--input",
        dest="arrays",
        metavar="[NAME=]FILE",
        action="append",
        default=[],
        help="a .npy file with an input, in order or by name (default: all are random)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=natural, default=0, help="seed of random inputs (default: 0)"
    )


def positive(text: str) -> int:
    """Return a number from 1, for the parser.

    >>> positive("2")
    2
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1, not '{text}'")
    return int(text)


def _named_size(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"it must be NAME=N, such as batch=1, not '{text}'")
    return name, positive(size)


def _named_sizes(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"it must be NAME=N[,N], such as batch=1,8, not '{text}'")
    return name, tuple(map(positive, sizes.split(",")))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"it must be a number of seconds above 0, not '{text}'")
    return value
