"""Fuse the epilogues of a real layer, and show what changed, that it is right, and how fast.

A Relax layer (depthwise Conv1D with bias and SiLU, RMSNorm, an MLP with bias and ReLU, a residual,
max pooling with ReLU, a softmax) is lowered to TIR, and every reduction in it is handed to
Schedule.fuse_reduction_epilogue(block). For each function: the TIR before and after as a diff, what
the reduction absorbed, what runs on its finished elements (the tail), what was left and why.
Then both versions are compiled for LLVM, compared with each other and with numpy, and timed.
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
from fuse_epilogue import FusionReport, FusionStep
from terminal import Paint, diff, table

FULL = layer.Shape(channels=128, length=256, hidden=512)
QUICK = layer.Shape(channels=32, length=64, hidden=64)
HEADING = ("", "absorbed", "tail", "left", "integers", "normals", "before", "after", "ratio")
NOTES = """
absorbed  Blocks that have become a part of the reduction: no loop and no buffer of theirs is left.
tail      Blocks that run once on each finished element, inside the loops of the reduction; with
          "+" between them they are one block now.
left      The reason why the next block stays as it was.
integers  Inputs are whole numbers from -8 to 8, so that float32 sums are exact. "bit for bit":
          fused and unfused agree in every bit, and with numpy in value. A function that divides,
          or calls a sigmoid, a root or an exponential, rounds: its error is here, as for normals.
normals   Inputs are standard normals, weights as if a training began. The largest error of both
          versions against numpy in float64, as a part of the largest value; {tolerance:.0e} is
          allowed.
times     The best of {rounds} runs, the two versions in turns, on one thread. The code is not
          scheduled: loops as they were lowered. The ratio is what fusing alone does to such code,
          not how fast the layer can be; a few per cent either way are noise.
"""


@dataclass
class Outcome:
    """What became of one function, or of the whole layer."""

    name: str
    absorbed: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    on_integers: str = "-"
    on_normals: str = "-"
    seconds: tuple[float, float] | None = None

    @property
    def is_fused(self) -> bool:
        """Whether anything was fused."""
        return bool(self.absorbed or self.tails)

    def row(self) -> list[str]:
        """Return the cells under ``HEADING``."""
        codes = list(dict.fromkeys(self.left))  # each once, in order
        row = [self.name, *(", ".join(cell) or "-" for cell in (self.absorbed, self.tails, codes))]
        row += [self.on_integers, self.on_normals]
        if self.seconds is None:
            return [*row, "-", "-", "-"]
        before, after = self.seconds
        return [*row, microseconds(before), microseconds(after), f"{before / after:.2f}x"]


def microseconds(seconds: float) -> str:
    """Write a time with a decimal where that can matter."""
    return f"{seconds * 1e6:,.{0 if seconds > 1e-4 else 1}f} us"


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
        outcome.left.append(code)
        yield paint.labelled("refused", "yellow", f"{reduction} [{code}] {sentence}")
        return
    yield from told(report, outcome, paint)


def told(report: FusionReport, outcome: Outcome, paint: Paint) -> Iterator[str]:
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
            into = f"{step.epilogue} is part of {step.merged_into} now"
            yield paint.labelled("merged", "cyan", into + gone)
        elif step.tail:
            outcome.tails.append(" + ".join([*merged.pop(step.epilogue, []), step.epilogue]))
            rest = f"{step.epilogue} computes {step.tail} from each finished element: {step.reason}"
            yield paint.labelled("tail", "cyan", rest + gone)
    for name in report.kept:
        yield paint.labelled("kept", "yellow", f"{name} in full: others may read it")
    if stop := report.stopped:
        outcome.left.append(stop.code)
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


def show(name: str, title: str, sch: Schedule, paint: Paint) -> Outcome:
    """Fuse function ``name``; print what changed in its TIR, and the verdicts."""
    before = sch.mod[name]
    outcome = Outcome(name)
    verdicts = [line for b in reductions(sch, name) for line in fuse(sch, b, outcome, paint)]
    print(f"\n{paint(f'{name}  ({title})', 'bold')}\n")
    print("\n".join(diff(script(before), script(sch.mod[name]), paint)) or "no line changed")
    print("", *verdicts, sep="\n")
    if outcome.is_fused:
        sizes = [f"{checking.intermediate_bytes(f):,} bytes" for f in (before, sch.mod[name])]
        print(f"memory   intermediate buffers, as TVM lowers them: {' before, '.join(sizes)} after")
    return outcome


def script(func: PrimFunc) -> str:
    """Print a function as TVMScript, with plain numbers for its 64-bit indices."""
    return func.script(int_dtype="int64")


# ---- checking ---------------------------------------------------------------------------------


def check(
    outcome: Outcome, before: tvm.IRModule, after: tvm.IRModule, reference: Callable, rounds: int
) -> None:
    """Compare both versions of one function with ``reference``; time them if they differ."""
    unfused, fused = before[outcome.name], after[outcome.name]
    if not outcome.is_fused and not tvm_ffi.structural_equal(unfused, fused):
        raise checking.Mismatch(f"{outcome.name}: nothing was fused, yet the function has changed")
    compiled = (checking.compile_function(func) for func in (unfused, fused))
    versions = checking.Versions(outcome.name, *compiled, reference)

    inputs = unfused.params[:-1]
    integers, normals = checking.integers(inputs), checking.normals(inputs)
    exact = checking.is_exact_on_integers(unfused)
    on_integers = checking.compare_bits if exact else checking.compare_close
    outcome.on_integers = on_integers(versions, integers)
    outcome.on_normals = checking.compare_close(versions, normals)
    if outcome.is_fused:
        outcome.seconds = checking.time_both(versions, normals, rounds)


def check_layer(before: tvm.IRModule, after: tvm.IRModule, rounds: int) -> Outcome:
    """Compare both versions of the whole layer, run as one module, and time them."""
    outcome = Outcome("the whole layer")
    compiled = (checking.compile_layer(mod) for mod in (before, after))
    versions = checking.Versions(outcome.name, *compiled, layer.whole_layer)
    inputs = checking.normals(before["forward"].params)
    outcome.on_normals = checking.compare_close(versions, inputs)
    outcome.seconds = checking.time_both(versions, inputs, rounds)
    return outcome


# ---- the story --------------------------------------------------------------------------------


def demo(shape: layer.Shape, rounds: int, paint: Paint) -> None:
    """Run the demo; raise ``checking.Mismatch`` if a comparison fails."""
    before = layer.lower(shape)
    sch = Schedule(before)
    called = list(layer.calls(before["forward"]))
    reducing = [name for name in called if reductions(sch, name)]
    print(
        f"A layer of {len(called)} functions, {len(reducing)} of which reduce. "
        f"Every reduction goes to sch.fuse_reduction_epilogue(block)."
    )
    stages = list(zip(reducing, layer.STAGES, strict=True))
    outcomes = [show(name, title, sch, paint) for name, (title, _) in stages]
    for outcome, (_, (_, reference)) in zip(outcomes, stages, strict=True):
        check(outcome, before, sch.mod, reference, rounds)
    outcomes.append(check_layer(before, sch.mod, rounds))

    print("\n" + paint("Summary", "bold") + "\n")
    print("\n".join(table([HEADING, *(outcome.row() for outcome in outcomes)], 6, paint)))
    print(NOTES.format(tolerance=checking.TOLERANCE, rounds=rounds))


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
    parser.add_argument("--quick", action="store_true", help="a smaller layer and fewer timings")
    options = parser.parse_args()
    shape, rounds = (QUICK, 11) if options.quick else (FULL, 21)
    try:
        demo(shape, rounds, Paint(options.color))
    except checking.Mismatch as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
