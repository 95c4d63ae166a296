"""Certificates with one field changed, and functions after that agree with the change.

A change of a field alone leaves the functions as they were: it shows nothing but that the checker
looks at the field. So the function after is changed, too: where the field says what a block stores,
in the same way; else anywhere. Whatever the checker accepts then must compute what the function
before computes.

``python -m certificate_fuzz --each 1000 --seed 7`` tries more than the tests do.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var, prim
from tvm.tirx import PrimFunc

from certified import Certified, buffers, certified, start, value
from fuse_epilogue.verify import (
    CertificateError,
    EvaluationError,
    NotEquivalent,
    check,
    equivalent,
)
from generated.monoids import ROWS
from generated.report import conditions, to_json
from generated.runner import provenance
from generated.state import Run
from programs import BY_NAME
from verify_mutator import ARITHMETIC, Mutator

Change = Callable[[Any], Any]
#: The verdict that must never be.
WRONG = "accepted and different"
MONOIDS = tuple(ROWS)
# Fields that are expressions of values, and those that hold expressions of indices.
VALUES = ("absorbed", "distributed", "init", "value")
INDICES = ("indices", "result_indices", "h", "inverse")


class Fuzzer:
    """Changes one field of a certificate, and the function after with it.

    - `given`: a right fusion.
    - `rng`: source of randomness.
    """

    def __init__(self, given: Certified, rng: random.Random) -> None:
        self.given = given
        self.rng = rng
        self.buffers = list((buffers(given.before) | buffers(given.after)).values())

    def changed(self) -> tuple[str, Certified] | None:
        """Return the name of the field and the fusion; None if the change is none."""
        certificate = self.given.certificate
        part = self.rng.choice(["", "", "epilogues", "tails"])
        owner = certificate
        place = 0
        if part:
            parts = getattr(certificate, part)
            if not parts:
                return None
            place = self.rng.randrange(len(parts))
            owner = parts[place]
        name = self.rng.choice([field.name for field in fields(owner)])
        old = getattr(owner, name)
        change = self.change()
        new = self.field(name, old, change)
        if new is None:
            return None
        given = replace(
            self.given,
            certificate=replace(certificate, **{name: new})
            if not part
            else replace(
                certificate,
                **{part: (*parts[:place], replace(owner, **{name: new}), *parts[place + 1 :])},
            ),
        )
        after = self.after(name, place, change)
        return None if after is None else (f"{part}.{name}", replace(given, after=after))

    def field(self, name: str, old: Any, change: Change) -> Any:
        """Return another value of a field, or None."""
        if isinstance(old, bool):
            return not old
        if name in ("monoid", "monoid_after"):
            return self.rng.choice(MONOIDS)
        if name == "numerics":
            return "exact" if old == "reassociate" else "reassociate"
        if isinstance(old, str):
            certificate = self.given.certificate
            parts = (*certificate.epilogues, *certificate.tails)
            return self.rng.choice([certificate.reduction, *(part.name for part in parts)])
        if name in VALUES:
            return change(old)
        if isinstance(old, tuple):
            return self.several(name, old)
        if isinstance(old, Var) and isinstance(old.ty, tirx.BufferType):
            return self.rng.choice(self.buffers)
        return Var("other", old.ty)

    def several(self, name: str, old: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return another tuple."""
        if not old:
            return (self.rng.choice(self.buffers),) if name in ("removed", "kept") else None
        place = self.rng.randrange(len(old))
        choices = [old[::-1], old[:place] + old[place + 1 :], (*old, old[place])]
        if name in INDICES:
            moved = old[place] + self.rng.choice([-1, 1, 2])
            scaled = old[place] * 2
            choices += [(*old[:place], one, *old[place + 1 :]) for one in (moved, scaled)]
        return self.rng.choice(choices)

    def change(self) -> Change:
        """Return a change of expressions that keeps their type: always the same one."""
        kind, seed = self.rng.randrange(6), self.rng.random()

        def apply(expr: Any) -> Any:
            rng = random.Random(seed)
            dtype = str(expr.ty.dtype)
            if dtype == "bool":
                return prim.Not(expr)
            one = tirx.const(1, dtype)
            if kind == 0:
                return expr + one
            if kind == 1:
                return expr * tirx.const(2, dtype)
            if kind == 2:
                return tirx.max(expr, one)
            if kind == 3:
                return tirx.if_then_else(expr > one, expr, one)
            return _one_operator(expr, rng)

        return apply

    def after(self, name: str, place: int, change: Change) -> PrimFunc | None:
        """Return the function after, changed as the field says, or anywhere."""
        given = self.given
        try:
            if name == "init":
                return start(given.certificate.reduction, change)(given.after)
            if name == "value":
                return value(given.certificate.tails[place].name, change)(given.after)
        except (TypeError, ValueError, RuntimeError):
            return None
        if name == "absorbed":
            # F is of what T.init starts from.
            return start(given.certificate.reduction, change)(given.after)
        return Mutator(given.after, self.rng).mutant()


def _one_operator(expr: Any, rng: random.Random) -> Any:
    """Replace an operator or an operand of it, the same one in expressions of the same form."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, ((*ARITHMETIC, TensorLoad), found.append))
    if not found:
        return expr + tirx.const(1, str(expr.ty.dtype))
    target, seen = rng.randrange(len(found)), 0
    other = rng.choice(ARITHMETIC)

    def one(node: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen - 1 != target:
            return node
        if isinstance(node, TensorLoad):
            return node + node if str(node.ty.dtype) != "bool" else node
        return other(node.b, node.a)

    return tvm_ffi.structural_map(expr, ((*ARITHMETIC, TensorLoad), one))


def verdict(given: Certified, numerics: Any, sizes: Any) -> str:
    """Check a certificate; what is accepted is compared, with sizes for those that have names."""
    try:
        check(given.before, given.after, given.certificate, timeout=1)
    except CertificateError:
        return "refused"
    try:
        options: Any = {"numerics": numerics, "sizes": sizes, "compiled": False, "timeout": 1}
        equivalent(given.before, given.after, **options)
    except (NotEquivalent, EvaluationError):
        return WRONG
    return "accepted and equal"


def fuzz(name: str, each: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Try changes of one fusion; returns how many verdicts there were, and changes of fields."""
    fuzzer = Fuzzer(certified(name), random.Random(f"{seed}/{name}"))
    program = BY_NAME[name]
    verdicts: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for _ in range(each):
        made = fuzzer.changed()
        if made is not None:
            verdicts[verdict(made[1], program.numerics, program.sizes[0])] += 1
            changed[made[0]] += 1
    return verdicts, changed


def main() -> int:
    """Try many changes of every fusion; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m certificate_fuzz", description=__doc__)
    parser.add_argument("--each", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the counts")
    parser.add_argument("names", nargs="*", default=sorted(NAMES))
    args = parser.parse_args()
    begun = time.monotonic()
    fusions: dict[str, dict[str, int]] = {}
    fields_changed: Counter[str] = Counter()
    for name in args.names:
        verdicts, changed = fuzz(name, args.each, args.seed)
        fusions[name] = dict(sorted(verdicts.items()))
        fields_changed += changed
        print(name, fusions[name], flush=True)
    wrong = sum(verdicts.get(WRONG, 0) for verdicts in fusions.values())
    if args.output:
        run = Run(args.seed, args.each * len(args.names), module="certificate_fuzz")
        report = {
            **conditions(run, workers=1),
            "benchmark": "fuzz-certificates",
            **provenance("fuzz_certificates"),
            "wall_time_s": round(time.monotonic() - begun, 1),
            "wrong": wrong,
            "fusions": fusions,
            "fields": dict(sorted(fields_changed.items())),
        }
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(to_json(report))
    return 1 if wrong else 0


#: The fusions whose certificates are changed.
NAMES = (
    "bias_then_relu",
    "two_blocks",
    "in_place",
    "transposing_tails",
    "flat_epilogue_transposing",
    "tail_everything_tiled",
    "float32_max_times_minus_two_if_asked",
    "int8_masked_or_if_asked",
    "relu_of_an_exact_sum",
    "intermediate_read_by_a_reduction",
    "symbolic",
    "symbolic_transposed",
)

if __name__ == "__main__":
    raise SystemExit(main())
