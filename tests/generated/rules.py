"""The rules of the truth: for what reasons an epilogue stays a block of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .facts import (
    PLACING,
    Facts,
    factors_split_loops,
    has_fault,
    in_place,
    misses_elements,
    mixes_loops,
    reads_after_repeated,
    reads_outside,
    reads_twice,
    reads_two_elements,
    reduction_has,
    stores_together,
    touched_by_view,
)
from .layouts import READS_BEYOND, WRITES_BEYOND
from .reached import is_partial

# What a rule says.
REFUSE = "refuse"
EITHER = "either"  # fusing right and refusing are both correct
DONE = "done"  # as `EITHER`; where it is refused it is as good as fused for what comes after it
STAYS = "stays"  # as `REFUSE`; if it stands in its place, what comes after it may be fused


@dataclass(frozen=True)
class Rule:
    """One reason for which an epilogue stays a block of its own.

    Attributes
    ----------
    name : str
    codes : tuple[str, ...]
        The refusal's code, or those between which the contract leaves a choice.
    applies : Callable
        Whether the rule holds for an epilogue (its number) of a program.
    reason : str
        Why it cannot be fused.
    says : str
        `REFUSE`, `EITHER`, `DONE` or `STAYS`.
    """

    name: str
    codes: tuple[str, ...]
    applies: Callable[[Facts, int], bool]
    reason: str
    says: str = REFUSE


# What is wrong with the reduction itself holds for all of its epilogues.
ABOUT_REDUCTION: tuple[Rule, ...] = (
    Rule(
        "no init",
        ("no-init", "other-writer"),
        lambda f, n: f.reduction.fault == "no init" or "decompose_reduction" in f.steps,
        "there is no T.init to absorb into or to place a tail behind; another block fills",
    ),
    Rule(
        "tuple reduction",
        ("tuple-reduction",),
        reduction_has("tuple"),
        "two accumulators are reduced at once",
    ),
    Rule(
        "no monoid",
        ("reduction-form",),
        reduction_has("clamped"),
        "a clamped step is not associative: the update is not acc (+) t",
    ),
    Rule(
        "strange init",
        ("reduction-form",),
        reduction_has("init of itself", "init by step"),
        "the init depends on the accumulator or on the step",
    ),
    Rule(
        "init not first",
        ("reduction-order", "reduction-domain"),
        reduction_has("reversed"),
        "T.init fires where the axis is at its minimum, which is the last step",
    ),
    Rule(
        "reduction cut off",
        ("reduction-domain", "reduction-order"),
        reduction_has("last step cut"),
        "the predicate leaves out points of the reduction's domain",
    ),
    Rule(
        "reduction repeated",
        ("reduction-domain",),
        reduction_has("repeated"),
        "every element is computed twice: between the two it is not finished",
    ),
    Rule(
        "parallel reduction",
        ("reduction-loop-kind",),
        reduction_has("parallel step"),
        "the steps of one element do not follow one another",
    ),
    Rule(
        "other writer",
        ("other-writer",),
        lambda f, n: f.any_hazard("write result"),
        "another block changes the reduction's result",
    ),
    Rule(
        "address of the result",
        ("opaque-access",),
        lambda f, n: f.any_hazard("address of result"),
        "anybody may read or write the result through its address",
    ),
)

RULES: tuple[Rule, ...] = (
    *ABOUT_REDUCTION,
    Rule(
        "factored loops",
        ("reduction-domain", "reduction-order"),
        factors_split_loops,
        "TVM drops what it knows of a split axis when it factors the reduction",
        EITHER,
    ),
    Rule(
        "reduction moved into loops",
        ("reduction-domain", "shared-loops"),
        lambda f, n: "compute_at" in f.steps,
        "under the loops of its consumer it may compute some elements again",
        EITHER,
    ),
    # ---- The form of the epilogue ----
    Rule(
        "epilogue repeated",
        ("consumer-domain",),
        has_fault("repeated"),
        "a loop that no axis uses runs it several times",
    ),
    Rule(
        "after a repeated reader",
        ("consumer-domain",),
        reads_after_repeated,
        "TVM lets what is repeated write to the memory of what is not read after it any more",
        EITHER,
    ),
    Rule(
        "epilogue cut off",
        ("consumer-domain",),
        lambda f, n: f.epilogue(n).predicate == "cut",
        "some elements of the output keep what they had",
    ),
    Rule(
        "not one store",
        ("consumer-form",),
        has_fault("two stores", "init", "branch inside"),
        "the block is not a single unconditional store to an element of its own",
    ),
    Rule(
        "under a condition",
        ("structure",),
        has_fault("branch around"),
        "the loops may not run at all",
    ),
    Rule(
        "block in a block",
        ("structure", "consumer-form"),
        has_fault("nested"),
        "the load is in another scope",
    ),
    Rule(
        "matched region",
        ("opaque-access",),
        touched_by_view,
        "somebody loads the buffer through a view",
    ),
    Rule(
        "side effects",
        ("impure",),
        has_fault("impure"),
        "a call that may have effects cannot be moved",
    ),
    Rule(
        "operand after a call with effects",
        ("structure",),
        lambda f, n: (
            is_partial(f.program, n) and any(f.epilogue(k).fault == "impure" for k in range(n))
        ),
        "the call may end the program before an operand is computed that is not defined everywhere",
        EITHER,
    ),
    Rule(
        "scattered store",
        ("output-write", "index-map", "consumer-form"),
        has_fault("scatter"),
        "the value decides where it is stored",
    ),
    Rule(
        "after axes of another integer type",
        ("index-map",),
        lambda f, n: (
            f.program.index != "int64"
            and any(f.epilogue(k).fault == "int64 axes" for k in range(n))
        ),
        "an element may be computed from indices of the one type and from those of the other",
        EITHER,
    ),
    # ---- Where elements come from and go to ----
    Rule(
        "reads outside",
        ("domain", "index-map"),
        reads_outside,
        "it writes elements for which the reduction computes nothing",
    ),
    Rule(
        "leaves elements out",
        ("domain", "index-map"),
        misses_elements,
        "the reduction computes elements that it does not read",
    ),
    Rule(
        "reads an element twice",
        ("index-map", "domain"),
        reads_twice,
        "two of its points read the same element",
    ),
    Rule(
        "reads two elements",
        ("index-map", "domain"),
        reads_two_elements,
        "one of its points reads different elements",
    ),
    Rule(
        "indices from memory",
        ("index-map",),
        lambda f, n: f.epilogue(n).read == "gather",
        "the elements that it reads are known at run time only",
    ),
    Rule(
        "read map beyond the contract",
        ("index-map", "domain", "output-write", "reduction-domain"),
        lambda f, n: f.epilogue(n).read in READS_BEYOND,
        "one to one, but not an affine map with positive steps",
        EITHER,
    ),
    Rule(
        "several elements in one place",
        ("output-write",),
        stores_together,
        "the last of them in the program's order has to win",
    ),
    Rule(
        "write map beyond the contract",
        ("output-write", "reduction-domain", "domain", "index-map"),
        lambda f, n: f.epilogue(n).write in WRITES_BEYOND,
        "one to one, but not with positive steps",
        EITHER,
    ),
    # ---- What happens in between ----
    Rule(
        "bias written between",
        ("bias-written-between",),
        lambda f, n: f.hazard("write bias", n, 1, n + 1),
        "fused, it would be read before it is written",
        STAYS,
    ),
    Rule(
        "copy of a copy",
        ("bias-written-between",),
        lambda f, n: sum(step.kind == "cache_read" for step in f.done) > 1,
        "TVM fills the second one in front of the epilogue, behind the reduction",
        EITHER,
    ),
    Rule(
        "address of the bias",
        ("opaque-access",),
        lambda f, n: f.hazard("address of bias", n, 0, 99),
        "the bias may be changed through its address",
        STAYS,
    ),
    Rule(
        "output read between",
        ("output-used-between",),
        lambda f, n: f.hazard("read output", n, 1, n + 1),
        "fused, the output would be overwritten before it is read",
        STAYS,
    ),
    Rule(
        "second writer",
        ("output-writers",),
        lambda f, n: f.hazard("write output", n, 0, 99),
        "the order of the two stores would change",
    ),
    Rule(
        "address of the output",
        ("opaque-access",),
        lambda f, n: f.hazard("address of output", n, 0, 99),
        "the output may be read through its address",
    ),
    Rule(
        "output shared with another element",
        ("output-aliases-input",),
        lambda f, n: f.epilogue(n).alias == "shifted bias",
        "an element that is still to be read would be overwritten",
    ),
    Rule(
        "output shared with the source",
        ("output-aliases-input",),
        lambda f, n: f.epilogue(n).alias == "source",
        "terms that are still to be read could be overwritten",
    ),
    # ---- Where its tail would stand ----
    Rule(
        "already in place",
        ("already-fused",),
        in_place,
        "it stands behind the reduction loops, and there may be nothing to absorb",
        DONE,
    ),
    Rule(
        "placed under loops",
        ("consumer-domain", "shared-loops", "index-map"),
        lambda f, n: bool(f.steps & PLACING),
        "TVM gives a block that it moves under a loop any binding that covers what is needed",
        EITHER,
    ),
    Rule(
        "mixed loops",
        ("tail-place", "reduction-order", "reduction-domain"),
        mixes_loops,
        "behind the reduction loops there is no loop over the spatial axes alone",
        EITHER,
    ),
)
