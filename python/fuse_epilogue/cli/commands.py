"""The commands, their options and their help.

Nothing here imports TVM, so that ``--help`` is shown at once. What a command does is in the module
that its row of :data:`COMMANDS` names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from .arguments import (
    MACHINES,
    POLICIES,
    SAVED,
    TARGETS,
    add_compiling,
    add_inputs,
    add_numerics,
    natural,
    positive,
)


@dataclass(frozen=True)
class Command:
    """Help, arguments and module of a command.

    Attributes
    ----------
    module : str
        The module of this package whose ``run`` does the work.
    help : str
        One line, for the list of commands.
    description, examples : str
        For its own ``--help``.
    add : Callable
        Adds the command's arguments to its parser.
    reads_input : bool
        Whether its first argument is a file with a module.
    """

    module: str
    help: str
    description: str
    examples: str
    add: Callable[[argparse.ArgumentParser], None]
    reads_input: bool = True


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--function", metavar="NAME", help="look at this one only (default: all)")
    add_numerics(parser)


def _fuse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default="planner",
        help="what to fuse (planner: by the costs of a plan where the planner knows the function "
        "for the target, and by what the intermediates are worth elsewhere; always: whatever is "
        "not refused; never: nothing, for the report of what could be fused; default: planner)",
    )
    add_numerics(parser)
    parser.add_argument("--target", help="what to plan for; " + TARGETS + " (default: none)")
    parser.add_argument("-o", "--out", metavar="FILE", help="write the module there, as JSON")
    parser.add_argument(
        "--show", action="store_true", help="print the TIR of each fused function before and after"
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="host", help=TARGETS + " (default: host)")
    parser.add_argument("--function", metavar="NAME", help="plan this one only (default: all)")
    parser.add_argument("--finite", action="store_true", help="for Trainium: all data are finite")
    parser.add_argument(
        "--measure",
        metavar="N",
        type=natural,
        default=0,
        help="time N points on this machine, a quarter of a second each or so",
    )
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the plan as JSON; of one function"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="explain every term, all limits and other sizes"
    )
    parser.add_argument("--picture", metavar="FILE", help="draw it as SVG; of one function")


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--out", metavar="FOLDER", required=True, help="where the database is"
    )
    parser.add_argument(
        "--trials", type=int, default=64, help="measurements of each function (default: 64)"
    )
    parser.add_argument(
        "--target", default="host", help=f"{TARGETS}; with num-cores (default: host)"
    )
    parser.add_argument("--function", metavar="NAME", help="tune this one only (default: all)")
    parser.add_argument(
        "--servers", type=int, default=0, help="processes that measure (default: 0, this one does)"
    )
    parser.add_argument(
        "--cost-model",
        choices=["xgb", "random"],
        default="xgb",
        help="what chooses what is measured; xgb needs the package xgboost (default: xgb)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")


def _nki(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine", choices=MACHINES, default="trn1", help="which core (default: trn1)"
    )
    parser.add_argument("--function", metavar="NAME", help="which function, if there are several")
    parser.add_argument("--finite", action="store_true", help="all data and weights are finite")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the kernel there, and not to stdout"
    )


def _compile(parser: argparse.ArgumentParser) -> None:
    add_compiling(parser)
    parser.add_argument("-o", "--out", metavar="FILE", help="save the model there: .so or .fe")


def _run(parser: argparse.ArgumentParser) -> None:
    add_compiling(parser)
    add_inputs(parser)
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the result as .npy, or all of them as .npz"
    )


def _profile(parser: argparse.ArgumentParser) -> None:
    add_compiling(parser)
    add_inputs(parser)
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=positive,
        default=11,
        help="runs of which the median counts (default: %(default)s)",
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")


def _calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="the JSON file")
    parser.add_argument(
        "--points", type=int, default=40, help="points of each kernel (default: 40)"
    )
    parser.add_argument(
        "--tracker", metavar="HOST:PORT", help="of TVM's RPC (default: measure here)"
    )
    parser.add_argument("--key", help="what the servers are called at the tracker")


#: The commands by name, in the order of the help.
COMMANDS: MappingProxyType[str, Command] = MappingProxyType(
    {
        "explain": Command(
            "explained",
            "say of each reduction what can be fused into it, and why the rest cannot",
            """
Look at every reduction of every function: what follows it, what of that the reduction can start
from, what is left for each finished element, and what is refused, with the code of the reason and
the way out. Fusions of earlier runs are listed separately from what can still be fused. Nothing is
changed and nothing is written.
""",
            """
  python -m fuse_epilogue explain model.json
  python -m fuse_epilogue explain model.onnx --json
""",
            _explain,
        ),
        "fuse": Command(
            "fused",
            "fuse every reduction of a module with what follows it, and say what was done",
            """
Run the pass fuse_epilogue.transform.FuseReductionEpilogue over a module. Reductions whose fusion
cannot be proved are left as they are, and the report says why. Floats stay bit for bit unless
--numerics reassociate allows more. The module is written to --out, as JSON that tvm.ir.load_json
reads; without --out only the report is printed, and the module is discarded.
""",
            """
  python -m fuse_epilogue fuse model.json --out fused.json
  python -m fuse_epilogue fuse model.json --show
  python -m fuse_epilogue fuse model.onnx --policy planner --target host --out fused.json
""",
            _fuse,
        ),
        "plan": Command(
            "planned",
            "choose a schedule for each function by what it costs on a machine, and say why",
            """
Choose a schedule for each function of a module: the problem as loops, tile sizes and ways to fuse,
the machine as constraints, and a cost that is predicted. With --measure the most promising points
are timed on this machine, and the fastest is taken. Prints the explanation; a plan is also data
(--out), and a picture (--picture).
""",
            """
  python -m fuse_epilogue plan matmul.json --target host
  python -m fuse_epilogue plan matmul.json --measure 24
  python -m fuse_epilogue plan conv.json --target trn1 --out plan.json --picture plan.svg
""",
            _plan,
        ),
        "tune": Command(
            "tuned",
            "search schedules by measuring them, fused and unfused; goes on if stopped",
            """
Tune each function with TVM's MetaSchedule, with fused and unfused reductions in the search space.
Every measurement is in the database in FOLDER as soon as it is made: a run that was stopped goes on
when it is started again with the same folder. With --servers, measurements run in processes of
TVM's RPC on this machine, which listen on the loopback interface only: TVM's RPC trusts its
network, and anyone who reaches a server may run code there.
""",
            """
  python -m fuse_epilogue tune model.json --out tuned --trials 64
  python -m fuse_epilogue tune model.json --out tuned --trials 256 --servers 1 --function matmul
""",
            _tune,
        ),
        "nki": Command(
            "kernels",
            "write the NKI kernel of a function for AWS Trainium, with its predicted latency",
            """
Plan a function for one NeuronCore, emit its NKI kernel, check it against the limits of the machine
and predict its latency with the model that comes with this package. No Trainium is needed.
""",
            """
  python -m fuse_epilogue nki conv.json --machine trn2 --out kernel.py
""",
            _nki,
        ),
        "compile": Command(
            "compiled",
            "compile a whole model for a processor, and save it to one file",
            """
Compile a model, every function of it with its epilogue and a schedule, and save it. INPUT is an
ONNX model, or a module of Relax whose function "main" is the model. Prints what each function has
become. The file is read by `run`, `profile` and fuse_epilogue.load; one that ends in .so is a
shared library for TVM's runtime as well.
""",
            """
  python -m fuse_epilogue compile model.onnx -o model.so
  python -m fuse_epilogue compile model.onnx --size batch=1 --threads 2 -o model.so
""",
            _compile,
        ),
        "run": Command(
            "executed",
            "run a compiled model on arrays in files, or on random ones",
            f"""
Run a model once and say what it returns. INPUT is {SAVED}, or what
`compile` takes, which is compiled first. Results can be written as NumPy has them.
""",
            """
  python -m fuse_epilogue run model.so --input x.npy --out y.npy
  python -m fuse_epilogue run model.so --input ids=ids.npy --input mask=mask.npy --json
""",
            _run,
        ),
        "profile": Command(
            "profiled",
            "measure each function of a compiled model on this machine",
            f"""
Run a model some times and report what each function of it is and takes: kind, fusion, predicted
and measured time, share of the whole. INPUT is {SAVED},
or what `compile` takes, which is compiled first. Threads: the environment variable TVM_NUM_THREADS.
""",
            """
  python -m fuse_epilogue profile model.so
  python -m fuse_epilogue profile model.onnx --repeats 31 --html report.html
""",
            _profile,
        ),
        "calibrate": Command(
            "calibrated",
            "measure a machine for the planner and write its profile",
            """
Measure a machine and write its profile. It takes minutes; every measurement is kept beside FILE as
soon as it is made, and the same command goes on after it was stopped. With --tracker and --key the
machine is another one, on which a server of TVM's RPC runs; servers of one key have to be of one
kind. TVM's RPC trusts its network: anyone who reaches a tracker or a server may run code there.
""",
            """
  python -m fuse_epilogue calibrate --out profile.json
  python -m fuse_epilogue calibrate --out xeon.json --tracker 10.0.0.1:9190 --key xeon
""",
            _calibrate,
            reads_input=False,
        ),
    }
)
