"""Conditions and what is chosen by them, in every spelling: `and`, `or`, Select, if_then_else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from certified import Certified, loaded, value
from fuse_epilogue.verify import CertificateError, check
from fuse_epilogue.verify.evaluation.scalars import scalar_type
from fuse_epilogue.verify.proof.prover import Prover
from fuse_epilogue.verify.proof.symbolic import TermArithmetic

N, K = 8, 3

# A condition c, a predicate p that may be evaluated where c holds only, and another one q.
Spelling = Callable[[Any, Any, Any], Any]
true, false = T.bool(True), T.bool(False)
lazy, select = T.if_then_else, T.Select

# Spellings of the same value, and one of another value.
SPELLINGS: dict[str, tuple[list[Spelling], Spelling]] = {
    "and": (
        [
            lambda c, p, q: T.And(c, p),
            lambda c, p, q: lazy(c, p, false),
            lambda c, p, q: select(c, p, false),
            lambda c, p, q: lazy(T.Not(c), false, p),
            lambda c, p, q: lazy(c, lazy(p, true, false), c),
        ],
        lambda c, p, q: lazy(c, p, true),
    ),
    "or": (
        [
            lambda c, p, q: T.Or(T.Not(c), p),
            lambda c, p, q: lazy(c, p, true),
            lambda c, p, q: lazy(T.Not(c), true, p),
            lambda c, p, q: lazy(c, select(p, true, false), T.Not(c)),
        ],
        lambda c, p, q: lazy(c, true, p),
    ),
    "negated and": (
        [
            lambda c, p, q: T.Or(T.Not(c), p),
            lambda c, p, q: T.Not(T.And(c, T.Not(p))),
            lambda c, p, q: T.Not(lazy(c, T.Not(p), false)),
        ],
        lambda c, p, q: T.Not(T.And(c, p)),
    ),
    "selection": (
        [
            lambda c, p, q: select(c, p, q),
            lambda c, p, q: lazy(c, p, q),
            lambda c, p, q: T.Or(T.And(c, p), T.And(T.Not(c), q)),
            lambda c, p, q: lazy(T.Not(c), q, p),
        ],
        lambda c, p, q: lazy(c, q, p),
    ),
    "nested": (
        [
            lambda c, p, q: lazy(q, lazy(c, T.And(c, p), true), c),
            lambda c, p, q: lazy(q, lazy(c, lazy(c, p, false), true), c),
            lambda c, p, q: select(T.Not(q), c, select(c, p, true)),
            lambda c, p, q: T.Or(T.And(q, T.Or(T.Not(c), p)), T.And(T.Not(q), c)),
        ],
        lambda c, p, q: lazy(q, lazy(c, lazy(c, p, false), false), c),
    ),
}

# What follows from the laws of and, or and not: z3 knows them within other operations.
NEEDS_Z3 = {"negated and", "nested"}

# What is made of the predicate.
USES: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda each: T.cast(each, "float32") * T.float32(0.25),
    "twice": lambda each: T.cast(T.cast(each, "int32") + 3, "float32"),
    "chosen": lambda each: T.if_then_else(each, T.float32(2), T.float32(0.5)),
}


def program(finish: Callable[[Any, Any, Any], Any]) -> PrimFunc:
    """D = finish(E, p, q), where E compares a sum and p indexes a table."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((N, K), "int32"),
        C: T.Buffer((N,), "int32"),
        S: T.Buffer((3,), "int32"),
        Q: T.Buffer((N,), "bool"),
        E: T.Buffer((N,), "bool"),
        D: T.Buffer((N,), "float32"),
    ):
        temp = T.sblock_alloc_buffer((N,), "int32")
        for i, k in T.grid(N, K):
            with T.sblock("red"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        for i in range(N):
            with T.sblock("test"):
                vi = T.axis.spatial(N, i)
                E[vi] = temp[vi] >= C[vi]
        for i in range(N):
            with T.sblock("epi"):
                vi = T.axis.spatial(N, i)
                D[vi] = finish(E[vi], S[C[vi]] > 1, Q[vi])

    return func


def fused(func: PrimFunc) -> Certified:
    sch = tvm.s_tir.Schedule(func)
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue("red")
    return Certified(before, sch.mod["main"], report.certificate)


def stores(use: Callable[[Any], Any], spelling: Spelling) -> Callable[[Any, Any, Any], Any]:
    """What the last block stores; all of the operands are in it, whatever the spelling."""
    return lambda c, p, q: use(spelling(c, p, q)) + T.cast(q, "float32")


def before_spelled(given: Certified, use: Callable[[Any], Any], spelling: Spelling) -> Certified:
    """A fusion whose function before spells its last block otherwise."""

    def change(old: Any) -> Any:
        return stores(use, spelling)(loaded(old, "E"), loaded(old, "S") > 1, loaded(old, "Q"))

    return Certified(value("epi", change)(given.before), given.after, given.certificate)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("name", "with_z3"),
    [(name, z3) for name in SPELLINGS for z3 in (True, False) if z3 or name not in NEEDS_Z3],
)
def test_spellings_of_one_value_are_believed_and_others_refused(
    name: str, use: str, with_z3: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_z3:
        monkeypatch.setattr("fuse_epilogue.verify.proof.prover.has_z3", lambda: False)
    spellings, twin = SPELLINGS[name]
    given = fused(program(stores(USES[use], spellings[0])))
    for spelling in spellings:
        same = before_spelled(given, USES[use], spelling)
        check(same.before, same.after, same.certificate)
    other = before_spelled(given, USES[use], twin)
    with pytest.raises(CertificateError, match="does not get what it got before"):
        check(other.before, other.after, other.certificate)


def test_exact_products_do_not_depend_on_the_order_of_proofs() -> None:
    """Operands that only z3 knows to be equal may have been made in another order."""
    type, boolean = scalar_type("float32"), scalar_type("bool")
    table = TermArithmetic(exact=True)
    x, y = (table.unknown(name, 0, type) for name in "xy")
    c, d, e = (table.unknown(name, 0, boolean) for name in "cde")

    def chosen(*conditions: Any) -> Any:
        """x where all conditions hold, otherwise y: of one normal form for each order."""
        result = x
        for condition in conditions:
            result = table.choose(type, condition, result, y)
        return result

    first = table.binary("mul", type, chosen(c, d), middle := chosen(e, c, d))
    second = table.binary("mul", type, chosen(d, e, c), chosen(d, c))
    assert Prover(table, 5).equal(chosen(d, e, c), middle) and first is not second
    assert Prover(table, 5).equal(first, second)
    assert not Prover(table, 5).equal(first, table.binary("mul", type, chosen(d, c), x))
    # A quotient does depend on it.
    quotient = table.binary("div", type, chosen(c, d), middle)
    assert not Prover(table, 5).equal(
        quotient, table.binary("div", type, chosen(d, e, c), chosen(d, c))
    )
