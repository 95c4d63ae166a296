"""What is right for a program, from its specification alone.

Nothing here asks the primitive or looks at TIR. A program is walked through as the contract says:
an epilogue is a candidate if it reads the reduction's result or the output of a fused epilogue;
it is fused unless a rule forbids it. The rules are in ``rules``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .facts import Facts, in_place, stands_in_place
from .rules import ABOUT_REDUCTION, EITHER, REFUSE, RULES, STAYS
from .spec import Program, Step


@dataclass(frozen=True)
class Expectation:
    """What the primitive has to do.

    Attributes
    ----------
    must, may : frozenset[int]
        The epilogues that have to be fused, and those that may be.
    codes : frozenset[str]
        The codes with which the call, or what it stops at, may be refused.
    rules : tuple[str, ...]
        The names of the rules that applied.
    """

    must: frozenset[int]
    may: frozenset[int]
    codes: frozenset[str]
    rules: tuple[str, ...]

    @property
    def fusable(self) -> bool:
        """Whether the call has to succeed."""
        return bool(self.must)


# Codes for other blocks that read the result: a reduction, or a block in a block.
_OTHER_READERS = {"total": "consumer-form", "nested reader": "structure"}


def expectation(program: Program, done: Sequence[Step] = ()) -> Expectation:
    """Return what is right for a program.

    Parameters
    ----------
    program : Program
    done : sequence of Step
        The schedule steps that TVM accepted.
    """
    facts = Facts(program, done)
    whole_call = _of_call(program, facts)
    if whole_call is not None:
        return whole_call
    # Whether a stage is the reduction's result or comes from a fused epilogue.
    status = ["yes"]
    must: set[int] = set()
    may: set[int] = set()
    codes: set[str] = set()
    names: list[str] = []
    for hazard in program.hazards:
        if hazard.kind in _OTHER_READERS:
            codes.add(_OTHER_READERS[hazard.kind])
    for number, epilogue in enumerate(program.epilogues):
        read = [status[s] for s in (epilogue.stage, epilogue.other) if s >= 0]
        says = _says(facts, number, read, codes, names)
        if program.call == "pair" and number != program.named:
            says = "no"
        if program.call == "consumer" and number != program.named and says == "yes":
            # The call names one consumer; the others that read the result may come along.
            says = "yes" if _follows(facts, number, program.named) else "maybe"
        status.append(_for_later(facts, says))
        if says == "yes":
            must.add(number)
        elif says not in ("no", "stays"):
            may.add(number)
    return Expectation(frozenset(must), frozenset(may), frozenset(codes), tuple(names))


def _says(facts: Facts, number: int, read: Sequence[str], codes: set[str], names: list[str]) -> str:
    """Whether an epilogue is to be fused; adds the codes and the names of the rules that apply."""
    if all(status == "no" for status in read):
        return "no"
    if facts.program.call == "pair" and number != facts.program.named:
        return "no"
    says = "maybe" if "maybe" in read else "yes"
    if "no" in read or "maybe" in read:
        # What it reads besides is written by a block that stays between.
        codes.update(("bias-written-between", "wrong-pair"))
        names.append("input from an epilogue that stays")
        says = "no" if "no" in read else says
    for rule in RULES:
        if rule.applies(facts, number):
            codes.update(rule.codes)
            names.append(rule.name)
            if rule.says == REFUSE:
                says = "no"
            elif rule.says == STAYS and says != "no":
                says = "stays"
            elif rule.says == EITHER and says not in ("no", "stays"):
                says = "maybe"
            elif says == "yes":
                says = "done"
    return says


def _for_later(facts: Facts, says: str) -> str:
    """Return what an epilogue is for those that read its output."""
    if says == "stays":
        return "maybe" if stands_in_place(facts) else "no"
    return "yes" if says == "done" else says


def _follows(facts: Facts, number: int, named: int) -> bool:
    """Whether an epilogue reads, directly or not, only what the named one gives."""
    while number > named:
        epilogue = facts.epilogue(number)
        if epilogue.other >= 0 or epilogue.stage == 0:
            return False
        number = epilogue.stage - 1
    return number == named


def _of_call(program: Program, facts: Facts) -> Expectation | None:
    """Return what is right where the call itself is wrong."""

    def refused(name: str, *codes: str) -> Expectation:
        return Expectation(frozenset(), frozenset(), frozenset(codes), (name,))

    if program.call == "stranger":
        return refused("call of a stranger", "not-a-reduction")
    if program.call == "wrong pair":
        return _of_wrong_pair(program, facts)
    if not program.epilogues:
        return refused("no consumer", "no-consumer", *_reduction_codes(program))
    return None


def _of_wrong_pair(program: Program, facts: Facts) -> Expectation:
    """Return what is right where the named epilogue does not read the reduction's result."""
    codes = {"wrong-pair", *_reduction_codes(program)}
    may = set()
    if in_place(facts, program.named):
        # What it reads may count as a finished tail of the reduction: then it is an epilogue.
        may.add(program.named)
        applying = [rule for rule in RULES if rule.applies(facts, program.named)]
        codes.update(code for rule in applying for code in rule.codes)
    return Expectation(frozenset(), frozenset(may), frozenset(codes), ("wrong pair",))


def _reduction_codes(program: Program) -> set[str]:
    """Return the codes of what is wrong with the reduction itself."""
    facts = Facts(program)
    return {code for rule in ABOUT_REDUCTION if rule.applies(facts, 0) for code in rule.codes}
