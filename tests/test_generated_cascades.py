"""Generated cascades: what is drawn, what it computes, and that a wrong fusion is found."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from generated_cascades.build import build
from generated_cascades.chunk import Proof, Refused, compiled, judge
from generated_cascades.spec import Program, draw
from generated_cascades.tally import DIFFERENT, FUSED, REFUSED, Tally

#: Programs of a seed that the tests draw.
SEED, PROGRAMS = 9, 40


def _unfused(_: Program, func: tirx.PrimFunc) -> Proof:
    return Proof(func, func, None)


def _scaled(_: Program, func: tirx.PrimFunc) -> Proof:
    """Every exponential a little larger."""

    def larger(call: Any) -> Any:
        if str(getattr(call.op, "name", "")) != "tirx.exp":
            return call
        return call * tirx.const(1.0001, str(call.ty.dtype))

    body = tvm_ffi.structural_map(func.body, (Call, larger))
    return Proof(func, func.with_body(body), None)


def test_programs_are_of_their_seed_and_of_every_kind() -> None:
    programs = [draw(f"{SEED}/{number}") for number in range(300)]
    assert programs == [draw(f"{SEED}/{number}") for number in range(300)]
    assert all(Program.from_json(json.loads(json.dumps(p.to_json()))) == p for p in programs)
    fields = "head mask layout fault reader numerics second called dtype later wide between".split()
    for field in fields:
        assert len({str(getattr(program, field)) for program in programs}) > 1, field
    assert 0.15 < sum(program.fusable for program in programs) / 300 < 0.6


@pytest.mark.parametrize("part", range(4))
def test_formula_is_the_program(part: int) -> None:
    for number in range(part * PROGRAMS // 4, (part + 1) * PROGRAMS // 4):
        verdict = judge(draw(f"{SEED}/{number}"), f"{SEED}/{number}", _unfused)
        assert verdict.kind == FUSED, (number, verdict.detail)


def test_formula_is_the_program_compiled() -> None:
    for number in range(4):
        program = draw(f"{SEED}/{number}")
        verdict = compiled(program, f"{SEED}/{number}", _unfused(program, build(program)))
        assert verdict.kind == FUSED, (number, verdict.detail)


def test_wrong_fusions_are_found() -> None:
    kinds: Counter[str] = Counter()
    for number in range(2 * PROGRAMS):
        program = draw(f"{SEED}/{number}")
        if program.fusable and program.head == "max" and program.mask == "none":
            kinds[judge(program, f"{SEED}/{number}", _scaled).kind] += 1
    assert kinds[DIFFERENT] >= 4
    assert set(kinds) == {DIFFERENT}


def test_refusals_are_counted_by_code() -> None:
    def refuse(*_: Any) -> Proof:
        raise Refused("cascade-row")

    tally, program = Tally(), draw(f"{SEED}/0")
    verdict = judge(program, "", refuse)
    tally.add(0, program, verdict.kind, verdict.detail)
    other = Tally()
    other.merge(json.loads(json.dumps(tally.to_json())))
    assert other.summary()["refusals"] == {"cascade-row": 1}
    assert other.verdicts == {REFUSED: 1}
    assert other.wrong == 0


def test_certificate_that_is_not_proved_is_counted() -> None:
    tally, program = Tally(), draw(f"{SEED}/0")
    func = build(program)
    tally.add_certificate(0, program, Proof(func, func, None).objection())
    assert tally.certificates == 1
    assert tally.unproved.total() == len(tally.failures) == 1
