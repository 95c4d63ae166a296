"""The commands, their options and their help.

Nothing here imports TVM, so that ``--help`` is shown at once. A command is run by the module of its
name.
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

_ROUND_SHARES = "allow attention to round its shares to 16 bits, if the values have as many"


@dataclass(frozen=True)
class Command:
    """Help and arguments of a command; ``run`` in the module of its name does the work.

    - `help`: one line, for the list of commands.
    - `description`, `examples`: texts of its own ``--help``; the examples call the script.
    - `add`: adds the command's arguments to its parser.
    - `reads_input`: whether its first argument is a file with a module.
    """

    help: str
    description: str
    examples: str
    add: Callable[[argparse.ArgumentParser], None]
    reads_input: bool = True


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--function", metavar="NAME", help="explain only this function (default: all)"
    )
    add_numerics(parser)


def _fuse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default="planner",
        help="which fusions to apply: planner: those that the planner's costs favour, or, for "
        "functions it does not know, those that remove enough intermediate memory; always: all "
        "that are not refused; never: none, only report what could be fused (default: planner)",
    )
    add_numerics(parser)
    parser.add_argument("--target", help="machine to plan for; " + TARGETS + " (default: none)")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the fused module to FILE, as JSON"
    )
    parser.add_argument(
        "--show", action="store_true", help="print the TIR of each fused function before and after"
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="host", help=TARGETS + " (default: host)")
    parser.add_argument("--function", metavar="NAME", help="plan only this function (default: all)")
    parser.add_argument(
        "--finite", action="store_true", help="Trainium: assume that all data are finite"
    )
    parser.add_argument("--round-shares", action="store_true", help=f"Trainium: {_ROUND_SHARES}")
    parser.add_argument(
        "--measure",
        metavar="N",
        type=natural,
        default=0,
        help="time the N best candidates on this machine, about a quarter of a second each",
    )
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the plan to FILE as JSON (one function only)"
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also explain every cost term, all limits and other sizes",
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="draw the plan as SVG (one function only)"
    )


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--out", metavar="FOLDER", required=True, help="folder of the database"
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=64,
        help="number of measurements for each function (default: 64)",
    )
    parser.add_argument(
        "--target", default="host", help=f"{TARGETS}; it must give num-cores (default: host)"
    )
    parser.add_argument("--function", metavar="NAME", help="tune only this function (default: all)")
    parser.add_argument(
        "--servers",
        type=int,
        default=0,
        help="number of processes that measure (default: 0, measure in this process); with "
        "--tracker, number of measurements that run at once",
    )
    _add_tracker(parser)
    parser.add_argument(
        "--cost-model",
        choices=["xgb", "random"],
        default="xgb",
        help="model that chooses the candidates to measure; xgb needs the package xgboost "
        "(default: xgb)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the search (default: 0)")


def _nki(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        "--target",
        choices=MACHINES,
        default="trn1",
        help="machine to emit the kernel for (default: trn1)",
    )
    parser.add_argument("--function", metavar="NAME", help="function to emit, if INPUT has several")
    parser.add_argument(
        "--finite", action="store_true", help="assume that all data and weights are finite"
    )
    parser.add_argument("--round-shares", action="store_true", help=_ROUND_SHARES)
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the kernel to FILE instead of standard output"
    )


def _compile(parser: argparse.ArgumentParser) -> None:
    add_compiling(parser)
    parser.add_argument("-o", "--out", metavar="FILE", help="save the model to FILE (.so or .fe)")
    parser.add_argument(
        "--explain", action="store_true", help="print why each function is computed as it is"
    )


def _run(parser: argparse.ArgumentParser) -> None:
    add_compiling(parser)
    add_inputs(parser)
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write one result as .npy, or all results as .npz"
    )


def _profile(parser: argparse.ArgumentParser) -> None:
    add_compiling(parser)
    add_inputs(parser)
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=positive,
        default=11,
        help="number of runs; the median is reported (default: %(default)s)",
    )
    parser.add_argument("--html", metavar="FILE", help="also write the report as an HTML page")


def _calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="write the profile to FILE (default: the file of the processor that planning reads)",
    )
    parser.add_argument(
        "--points",
        type=int,
        default=40,
        help="number of sizes measured for each kernel (default: 40)",
    )
    _add_tracker(parser)


def _add_tracker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tracker",
        metavar="HOST:PORT",
        help="tracker of TVM's RPC (default: measure this machine)",
    )
    parser.add_argument("--key", help="key of the servers at the tracker")


#: The commands by name, in the order of the help.
COMMANDS: MappingProxyType[str, Command] = MappingProxyType(
    {
        "explain": Command(
            "report what can be fused into each reduction, and why the rest cannot",
            """
Report for every reduction of every function which of the blocks after it the reduction can absorb,
which run once on each finished element, and which are refused, with the code of the reason and the
way out. Fusions of earlier runs are listed separately. No module is changed or written.
""",
            """
  fuse-epilogue explain model.json
  fuse-epilogue explain model.onnx --json
""",
            _explain,
        ),
        "fuse": Command(
            "fuse every reduction with the work that follows it, and report the outcome",
            """
Run the pass fuse_epilogue.transform.FuseReductionEpilogue over a module. Reductions whose fusion
cannot be proved are left as they are, and the report says why. Floats stay bit for bit unless
--numerics reassociate allows more. The module is written to --out, as JSON that tvm.ir.load_json
reads; without --out only the report is printed, and the module is discarded.
""",
            """
  fuse-epilogue fuse model.json --out fused.json
  fuse-epilogue fuse model.json --show
  fuse-epilogue fuse model.onnx --policy planner --target host --out fused.json
""",
            _fuse,
        ),
        "plan": Command(
            "choose a schedule for each function by its predicted cost, and explain the choice",
            """
Choose a schedule for each function of a module: loop orders, tile sizes and ways to fuse are
searched within the limits of the machine, for the lowest predicted cost. With --measure the best
candidates are timed on this machine, and the fastest is taken. The explanation is printed; --out
writes the plan as data, --picture as a drawing.
""",
            """
  fuse-epilogue plan matmul.json --target host
  fuse-epilogue plan matmul.json --measure 24
  fuse-epilogue plan conv.json --target trn1 --out plan.json --picture plan.svg
""",
            _plan,
        ),
        "tune": Command(
            "search fused and unfused schedules by measuring them; an interrupted search resumes",
            """
Tune each function with TVM's MetaSchedule, with fused and unfused reductions in the search space.
Every measurement is written to the database in FOLDER at once: an interrupted run resumes when it
is started again with the same folder. With --servers, measurements run in processes of TVM's RPC on
this machine, which listen on the loopback interface only; with --tracker and --key, on the servers
of that tracker, which may come and go. TVM's RPC trusts its network: anyone who reaches a server
may run code there.
""",
            """
  fuse-epilogue tune model.json --out tuned --trials 64
  fuse-epilogue tune model.json --out tuned --trials 256 --servers 1 --function matmul
  fuse-epilogue tune model.onnx --out tuned --tracker 10.0.0.1:9190 --key xeon --servers 8
""",
            _tune,
        ),
        "nki": Command(
            "write the NKI kernel of a function for AWS Trainium, with its predicted latency",
            """
Plan a function for one NeuronCore, emit its NKI kernel, check it against the limits of the machine
and predict its latency with the model that comes with this package. No Trainium is needed.
""",
            """
  fuse-epilogue nki conv.json --machine trn2 --out kernel.py
""",
            _nki,
        ),
        "compile": Command(
            "compile a whole model and save it",
            """
Fuse, schedule and compile every function of a model, and save it. INPUT is an ONNX model, or a
Relax module whose function "main" is the model. A table with a row for each function is printed.
The file is read by `run`, `profile` and fuse_epilogue.load; a .so file is also a shared library for
TVM's runtime. For a Trainium machine, --out is a new folder: a kernel for each function, weights,
and the order of calls.
""",
            """
  fuse-epilogue compile model.onnx -o model.so
  fuse-epilogue compile model.onnx --size batch=1 --threads 2 -o model.so
  fuse-epilogue compile model.onnx --size batch=1 --target trn2 -o model_trn2
""",
            _compile,
        ),
        "run": Command(
            "run a compiled model on arrays in files, or on random ones",
            f"""
Run a model once and describe its results. {SAVED}
""",
            """
  fuse-epilogue run model.so --input x.npy --out y.npy
  fuse-epilogue run model.so --input ids=ids.npy --input mask=mask.npy --json
""",
            _run,
        ),
        "profile": Command(
            "measure each function of a compiled model on this machine",
            f"""
Run a model several times and print a table of its functions: kind, fusion, predicted and measured
time, share of the total. {SAVED} The environment variable TVM_NUM_THREADS sets the number of
threads.
""",
            """
  fuse-epilogue profile model.so
  fuse-epilogue profile model.onnx --repeats 31 --html report.html
""",
            _profile,
        ),
        "calibrate": Command(
            "measure a machine for the planner and write its profile",
            """
Measure a machine and write its profile. Without --out it is written where planning for such a
processor reads it: the folder in FUSE_EPILOGUE_PROFILES, or ~/.config/fuse_epilogue/profiles. Says
what has changed since the previous profile. It takes minutes; every measurement is written beside
the profile at once, so that the same command resumes an interrupted run. With --tracker and --key
another machine is measured, on which a server of TVM's RPC runs; all servers of one key must be of
one kind. TVM's RPC trusts its network: anyone who reaches a tracker or a server may run code there.
""",
            """
  fuse-epilogue calibrate
  fuse-epilogue calibrate --out profile.json
  fuse-epilogue calibrate --out xeon.json --tracker 10.0.0.1:9190 --key xeon
""",
            _calibrate,
            reads_input=False,
        ),
    }
)
