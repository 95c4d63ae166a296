"""Fuse the epilogues of a layer, check that nothing changes, and show what it is worth.

A Relax layer (depthwise Conv1D with bias and SiLU, RMSNorm, an MLP with bias and ReLU, a residual,
max pooling with ReLU, a softmax) is lowered to TIR, and every reduction in it is handed to
Schedule.fuse_reduction_epilogue(block). The demo reports what each absorbed, what runs on its
finished elements (the tail), and what was left and why; it shows the TIR of one function as a diff.
Both versions of each function are compiled, and compared with each other and with numpy. Then the
whole layer is compiled in several ways and timed, and a small model by fuse_epilogue.compile.
The exit status is 1 if a comparison fails.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IterVar, PrimFunc

import checking
import fuse_epilogue
import layer
import model
import worth
from fuse_epilogue import FusionReport, FusionStep
from terminal import Paint, diff, table

FULL = layer.Shape(channels=64, length=2000, hidden=128)
QUICK = layer.Shape(channels=32, length=64, hidden=64)
SHOWN = "fused_matmul_add1_relu"  # the function whose TIR is shown, unless others are asked for
HEADING = ("function", "fused", "integers", "normals")
NOTES = """
fused     Blocks that the reduction absorbed + tails that run on each finished
          element, inside the loops of the reduction.
integers  Inputs are integers from -8 to 8, so that float32 sums are exact. "bit
          for bit": fused and unfused agree in every bit, and with numpy in
          value. A function that divides, or calls a root or an exponential,
          rounds: the column then has its error, as for normals.
normals   Inputs are standard normals. The column has the largest error of both
          versions against numpy in float64, as a part of the largest value;
          {tolerance:.0e} is allowed.
"""
WORTH = """
The layer on one thread, with its weights as constants; the best of {rounds} rounds,
in which the versions take turns. Unfused, every operator is its own function.
"""


@dataclass
class Outcome:
    """The outcome for one function."""

    name: str
    absorbed: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    on_integers: str = "-"
    on_normals: str = "-"

    @property
    def is_fused(self) -> bool:
        """Whether anything was fused."""
        return bool(self.absorbed or self.tails)

    def row(self) -> list[str]:
        """Return the cells under ``HEADING``."""
        tails = f"{len(self.tails)} tail{'s' if len(self.tails) > 1 else ''}"
        parts = [f"{len(self.absorbed)} absorbed"] if self.absorbed else []
        parts += [tails] if self.tails else []
        return [self.name, " + ".join(parts) or "-", self.on_integers, self.on_normals]


# ---- fusing -----------------------------------------------------------------------------------


def reductions(sch: Schedule, name: str) -> list[SBlockRV]:
    """Find the blocks of function ``name`` that have a reduction axis."""
    sch.work_on(name)
    return [
        block
        for block in sch.get_child_blocks(sch.get_sblock("root"))
        if any(axis.iter_type == IterVar.CommReduce for axis in sch.get(block).iter_vars)
    ]


def fuse(sch: Schedule, block: SBlockRV, outcome: Outcome, paint: Paint) -> Iterator[str]:
    """Fuse into one reduction all that can be fused, and yield each verdict as a line or two."""
    reduction = sch.get(block).name_hint
    try:
        report = sch.fuse_reduction_epilogue(block)
    except ScheduleError as error:
        code, sentence = refusal(error)
        yield paint.labelled("refused", "yellow", f"{reduction} [{code}] {sentence}")
        return
    yield from reported(report, outcome, paint)


def reported(report: FusionReport, outcome: Outcome, paint: Paint) -> Iterator[str]:
    """Yield what a report says, step by step, and note it in ``outcome``."""
    merged: dict[str, list[str]] = {}  # by the block whose tail they have become a part of
    for step in report.steps:
        gone = f"; buffer {step.removed} is gone" if step.removed else ""
        is_left = bool(step.tail or step.merged_into)
        if step.absorbed or step.distributed or not is_left:
            outcome.absorbed.append(step.epilogue)
            taken = f"{step.epilogue} into {report.reduction}: {gain(step)}"
            yield paint.labelled("fused", "green", taken + ("" if is_left else gone))
        if step.merged_into:
            merged.setdefault(step.merged_into, []).append(step.epilogue)
            into = f"{step.epilogue} is now part of {step.merged_into}"
            yield paint.labelled("merged", "cyan", into + gone)
        elif step.tail:
            outcome.tails.append(" + ".join([*merged.pop(step.epilogue, []), step.epilogue]))
            rest = f"{step.epilogue} computes {step.tail} from each finished element: {step.reason}"
            yield paint.labelled("tail", "cyan", rest + gone)
    for name in report.kept:
        yield paint.labelled("kept", "yellow", f"{name} in full: others may read it")
    if stop := report.stopped:
        yield paint.labelled("left", "yellow", f"[{stop.code}] {stop.message}")


def gain(step: FusionStep) -> str:
    """Say what the reduction does now that the block did before."""
    parts = [f"T.init takes {step.absorbed}"] if step.absorbed else []
    if step.distributed:
        parts.append(f"every term x becomes {step.distributed}")
    return ", ".join(parts) or "a plain copy"


def refusal(error: ScheduleError) -> tuple[str, str]:
    """Return the code and the sentence of a refused call; raise what is not a refusal."""
    code = fuse_epilogue.refusal_code(error)
    sentence = re.search(r"Error message: \[[^\]]*\] *(.*)", str(error))
    if code is None or sentence is None:
        raise error
    return code, sentence[1]


def show(name: str, title: str, sch: Schedule, wanted: str, paint: Paint) -> Outcome:
    """Fuse function ``name``; print the verdicts, and the diff of its TIR if it is wanted."""
    before = sch.mod[name]
    outcome = Outcome(name)
    verdicts = [line for b in reductions(sch, name) for line in fuse(sch, b, outcome, paint)]
    print(f"\n{paint(f'{name}  ({title})', 'bold')}\n")
    print(*verdicts, sep="\n")
    if outcome.is_fused:
        sizes = [f"{checking.intermediate_bytes(f):,} bytes" for f in (before, sch.mod[name])]
        print(f"memory   intermediate buffers: {' before, '.join(sizes)} after")
    if wanted in (name, "all"):
        changed = "\n".join(diff(script(before), script(sch.mod[name]), paint))
        print(f"\n{changed or 'no line changed'}")
    return outcome


def script(func: PrimFunc) -> str:
    """Print a function as TVMScript, with plain numbers for its 64-bit indices."""
    return func.script(int_dtype="int64")


# ---- checking ---------------------------------------------------------------------------------


def check(outcome: Outcome, before: tvm.IRModule, after: tvm.IRModule, reference: Callable) -> None:
    """Compare both versions of one function with ``reference``."""
    unfused, fused = before[outcome.name], after[outcome.name]
    if not outcome.is_fused and not tvm_ffi.structural_equal(unfused, fused):
        raise checking.Mismatch(f"{outcome.name}: nothing was fused, yet the function has changed")
    compiled = (checking.compile_function(func) for func in (unfused, fused))
    versions = checking.Versions(outcome.name, *compiled, reference)

    inputs = unfused.params[:-1]
    exact = checking.is_exact_on_integers(unfused)
    on_integers = checking.compare_bits if exact else checking.compare_close
    outcome.on_integers = on_integers(versions, checking.integers(inputs))
    outcome.on_normals = checking.compare_close(versions, checking.normals(inputs))


# ---- the story --------------------------------------------------------------------------------


def demo(shape: layer.Shape, rounds: int, wanted: str, paint: Paint) -> None:
    """Run the demo; raise ``checking.Mismatch`` if a comparison fails."""
    before = layer.lower(shape)
    sch = Schedule(before)
    called = list(layer.calls(before["main"]))
    reducing = [name for name in called if reductions(sch, name)]
    if wanted not in ("all", "none", *reducing):
        raise SystemExit(f"--diff: no function {wanted!r}; there are {', '.join(reducing)}")
    print(
        f"A layer of {len(called)} functions, {len(reducing)} of which reduce.\n"
        f"Every reduction goes to sch.fuse_reduction_epilogue(block)."
    )
    stages = list(zip(reducing, layer.STAGES, strict=True))
    outcomes = [show(name, title, sch, wanted, paint) for name, (title, _) in stages]
    for outcome, (_, (_, reference)) in zip(outcomes, stages, strict=True):
        check(outcome, before, sch.mod, reference)

    print("\n" + paint("Is it right?", "bold") + "\n")
    print("\n".join(table([HEADING, *(outcome.row() for outcome in outcomes)], 2, paint)))
    print(NOTES.format(tolerance=checking.TOLERANCE))
    print(paint("What is it worth?", "bold") + "\n" + WORTH.format(rounds=rounds))
    print("\n".join(table(list(rows(shape, rounds)), 1, paint)))
    print("\n" + paint("A model through fuse_epilogue.compile", "bold") + "\n")
    print(*model.lines(rounds), sep="\n")


def rows(shape: layer.Shape, rounds: int) -> Iterator[list[str]]:
    """Yield the rows of the table of times, the heading first."""
    inputs = checking.normals(layer.exported(shape)["main"].params)
    compiled = worth.versions(shape, inputs)
    errors = worth.errors(compiled, inputs)
    times = worth.times(compiled, rounds)
    yield ["the layer by", "functions", "error", "time", "default / it"]
    for version, error, seconds in zip(compiled, errors, times, strict=True):
        functions = "-" if version.functions is None else str(version.functions)
        times_faster = f"{times[0] / seconds:.1f}x"
        yield [version.name, functions, f"{error:.0e}", f"{seconds * 1e6:,.0f} us", times_faster]


def main() -> int:
    """Read the options, run the demo, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour the output (auto: on a terminal, unless NO_COLOR is set)",
    )
    parser.add_argument(
        "--diff",
        default=SHOWN,
        metavar="NAME",
        help="the function whose TIR is shown before and after; 'all' or 'none' (default: one)",
    )
    parser.add_argument("--quick", action="store_true", help="a smaller layer and fewer timings")
    options = parser.parse_args()
    shape, rounds = (QUICK, 3) if options.quick else (FULL, 11)
    try:
        demo(shape, rounds, options.diff, Paint(options.color))
    except checking.Mismatch as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
