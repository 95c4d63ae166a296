"""Certificates: every one that a fusion gives is accepted, every tampered one is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import tirx
from tvm.ir import Var, prim

import oracles
from certified import Certified, certified
from fuse_epilogue.verify import CertificateError, check
from programs import ACCEPT, Case


def checked(given: Certified) -> None:
    check(given.before, given.after, given.certificate)


def refused(given: Certified, claim: str) -> str:
    """The reason why a claim is refused."""
    with pytest.raises(CertificateError) as caught:
        checked(given)
    assert caught.value.claim == claim, caught.value
    assert str(caught.value).startswith(f"{claim}: ")
    return str(caught.value)


@pytest.mark.parametrize("case", ACCEPT, ids=lambda case: case.name)
@pytest.mark.parametrize("call", ["reduction", "pair"])
def test_certificates_of_fusions_hold(case: Case, call: str) -> None:
    sch = case.scheduled()
    epilogues = case.epilogues if call == "pair" else (None,)
    for epilogue in epilogues:
        before = sch.mod["main"]
        report = sch.fuse_reduction_epilogue(case.reduction, epilogue, **case.options)
        check(before, sch.mod["main"], report.certificate)


# ---------------------------------------------------------------------------------------------
# Tampering with each field in turn
# ---------------------------------------------------------------------------------------------

BIAS = "bias_then_relu"  # float32: mm absorbs E[vj], relu is a tail
INTEGER = "two_blocks"  # int32: mm absorbs E[vj] and C[vi, vj]
SCALED = "float32_scaled_sum_plus_value_if_asked"  # alpha x + C
SWAPPED = "float32_max_times_minus_two_if_asked"  # max becomes min
TILED = "tail_everything_tiled"  # predicates on all loops
TURNED = "transposing_tails"  # permuted outputs
SPLIT = "splitting_epilogue"  # h divides
KEPT = "intermediate_read_by_a_reduction"
LOCAL = "tail_threads"  # the accumulator moved to the threads' memory
EXACT = "relu_of_an_exact_sum"


def plus_one(expr: prim.Add) -> prim.Add:
    return expr + tirx.IntImm(str(expr.ty.dtype), 1)


def first_plus_one(exprs: tuple) -> tuple:
    return (plus_one(exprs[0]), *exprs[1:])


def of(name: str, **options: str) -> Callable[[], Certified]:
    return lambda: certified(name, **options)


# Field, the fusion, and what is claimed instead.
TAMPERED: list[tuple[str, str, Callable[[Certified], Certified]]] = [
    ("numerics", BIAS, lambda c: c.claiming(numerics="exact")),
    ("numerics", BIAS, lambda c: c.claiming(numerics="fast")),
    ("reassociates", BIAS, lambda c: c.claiming(reassociates=False)),
    ("reassociates", INTEGER, lambda c: c.claiming(reassociates=True)),
    ("reassociates", EXACT, lambda c: c.claiming(reassociates=True)),
    ("reduction", BIAS, lambda c: c.claiming(reduction="relu")),
    ("reduction", BIAS, lambda c: c.claiming(reduction="nothing")),
    ("monoid", BIAS, lambda c: c.claiming(monoid="max")),
    ("monoid", BIAS, lambda c: c.claiming(monoid="bit-wise or")),
    ("monoid", BIAS, lambda c: c.claiming(monoid="average")),
    ("monoid_after", BIAS, lambda c: c.claiming(monoid_after="product")),
    ("monoid_after", SWAPPED, lambda c: c.claiming(monoid_after="max")),
    ("accumulator", BIAS, lambda c: c.claiming(accumulator=c.buffer("mid"))),
    ("indices", BIAS, lambda c: c.claiming(indices=c.certificate.indices[::-1])),
    ("indices", BIAS, lambda c: c.claiming(indices=first_plus_one(c.certificate.indices))),
    ("indices", BIAS, lambda c: c.claiming(indices=c.certificate.indices[:1])),
    ("result", BIAS, lambda c: c.claiming(result=c.certificate.tails[0].output)),
    ("result_indices", TURNED, lambda c: c.claiming(result_indices=c.certificate.indices)),
    ("hole", BIAS, lambda c: c.claiming(hole=Var("x", "float64"))),
    # Another variable of the type: nobody knows then what the hole in F is.
    ("absorbed", BIAS, lambda c: c.claiming(hole=Var("x", "float32"))),
    ("absorbed", BIAS, lambda c: c.claiming(absorbed=c.certificate.hole)),
    ("absorbed", BIAS, lambda c: c.claiming(absorbed=c.certificate.absorbed * 2)),
    ("absorbed", INTEGER, lambda c: c.claiming(absorbed=plus_one(c.certificate.absorbed))),
    ("absorbed", SCALED, lambda c: c.claiming(absorbed=c.certificate.distributed)),
    ("distributed", BIAS, lambda c: c.claiming(distributed=c.certificate.hole * 2)),
    ("distributed", SCALED, lambda c: c.claiming(distributed=c.certificate.hole)),
    ("distributed", SWAPPED, lambda c: c.claiming(distributed=c.certificate.hole * -3.0)),
    ("init", BIAS, lambda c: c.claiming(init=tirx.FloatImm("float32", 0.0))),
    ("init", INTEGER, lambda c: c.claiming(init=plus_one(c.certificate.init))),
    ("init", INTEGER, lambda c: c.claiming(init=tirx.IntImm("int8", 0))),
    ("loops", BIAS, lambda c: c.claiming(loops=c.certificate.loops[::-1])),
    ("loops", BIAS, lambda c: c.claiming(loops=c.certificate.loops[:2])),
    ("inverse", BIAS, lambda c: c.claiming(inverse=c.certificate.inverse[::-1])),
    ("inverse", TILED, lambda c: c.claiming(inverse=first_plus_one(c.certificate.inverse))),
    ("inverse", BIAS, lambda c: c.claiming(inverse=c.certificate.inverse[:2])),
    # Every loop is itself: true, and worth nothing.
    ("inverse", BIAS, lambda c: c.claiming(inverse=c.certificate.loops)),
    (
        "epilogues[0].inverse",
        BIAS,
        lambda c: c.epilogue(0, inverse=c.certificate.epilogues[0].loops),
    ),
    ("epilogues[0].h", BIAS, lambda c: c.epilogue(0, h=c.certificate.epilogues[0].axes)),
    ("indices", BIAS, lambda c: c.claiming(indices=c.certificate.inverse[1:])),
    ("init", BIAS, lambda c: c.claiming(init=c.certificate.absorbed)),
    ("distributed", INTEGER, lambda c: c.claiming(distributed=c.certificate.inverse[2])),
    ("epilogues[0].name", BIAS, lambda c: c.epilogue(0, name="nothing")),
    ("epilogues[0].name", BIAS, lambda c: c.epilogue(0, name="mm")),
    ("after", BIAS, lambda c: c.claiming(epilogues=c.certificate.epilogues[:1])),
    ("after", BIAS, lambda c: c.claiming(epilogues=c.certificate.epilogues[1:])),
    (
        "epilogues[0].axes",
        BIAS,
        lambda c: c.epilogue(0, axes=c.certificate.epilogues[0].axes[::-1]),
    ),
    (
        "epilogues[0].axes",
        BIAS,
        lambda c: c.epilogue(0, axes=c.certificate.epilogues[1].axes),
    ),
    ("epilogues[0].h", BIAS, lambda c: c.epilogue(0, h=c.certificate.epilogues[0].h[::-1])),
    ("epilogues[0].h", BIAS, lambda c: c.epilogue(0, h=c.certificate.epilogues[0].h[:1])),
    (
        "epilogues[0].h",
        SPLIT,
        lambda c: c.epilogue(0, h=first_plus_one(c.certificate.epilogues[0].h)),
    ),
    (
        "epilogues[1].loops",
        BIAS,
        lambda c: c.epilogue(1, loops=c.certificate.epilogues[0].loops),
    ),
    (
        "epilogues[0].inverse",
        TILED,
        lambda c: c.epilogue(0, inverse=c.certificate.epilogues[0].inverse[::-1]),
    ),
    ("tails[0].name", BIAS, lambda c: c.tail(0, name="nothing")),
    ("tails[0].name", BIAS, lambda c: c.tail(0, name="mm")),
    ("tails[0].output", BIAS, lambda c: c.tail(0, output=c.buffer("mid"))),
    ("tails[0].indices", BIAS, lambda c: c.tail(0, indices=c.certificate.tails[0].indices[::-1])),
    ("tails[0].value", BIAS, lambda c: c.tail(0, value=c.certificate.tails[0].value * 2)),
    ("tails[0].value", BIAS, lambda c: c.tail(0, value=c.certificate.tails[0].value.a)),
    ("tails[0].value", EXACT, lambda c: c.tail(0, value=tirx.max(0, c.certificate.tails[0].value))),
    ("after", BIAS, lambda c: c.claiming(tails=())),
    ("removed", BIAS, lambda c: c.claiming(removed=())),
    ("removed", BIAS, lambda c: c.claiming(removed=(*c.certificate.removed, c.buffer("mid")))),
    ("removed", BIAS, lambda c: c.claiming(removed=(c.buffer("D"),))),
    ("removed", BIAS, lambda c: c.claiming(removed=c.certificate.removed * 2)),
    ("kept", BIAS, lambda c: c.claiming(kept=(c.buffer("mid"),))),
    ("kept", KEPT, lambda c: c.claiming(kept=())),
    ("kept", KEPT, lambda c: c.claiming(kept=c.certificate.kept * 2)),
]


@pytest.mark.parametrize(
    ("claim", "name", "tamper"),
    TAMPERED,
    ids=[f"{place}-{row[0]}-{row[1]}" for place, row in enumerate(TAMPERED)],
)
def test_tampered_certificates_are_refused(
    claim: str, name: str, tamper: Callable[[Certified], Certified]
) -> None:
    given = certified(name)
    checked(given)
    refused(tamper(given), claim)


def test_every_field_is_tampered_with() -> None:
    fields = {row[0].split("[")[0].split(".")[0] for row in TAMPERED}
    given = certified(BIAS).certificate
    assert fields == {*given.__dataclass_fields__, "after"}
    for part in (given.epilogues[0], given.tails[0]):
        name = "epilogues" if part is given.epilogues[0] else "tails"
        tampered = {row[0].split(".")[1] for row in TAMPERED if row[0].startswith(name + "[")}
        assert tampered == {*part.__dataclass_fields__}


def test_expressions_may_be_written_in_another_way() -> None:
    """What is claimed is what an expression means, not how it is written."""
    given = certified(BIAS)
    certificate = given.certificate
    swapped = certificate.absorbed.b + certificate.absorbed.a
    checked(given.claiming(absorbed=swapped))
    tiled = certified(TILED)
    inverse = tiled.certificate.inverse
    again = tirx.floordiv(inverse[0] * 2 + 1, tirx.IntImm("int32", 2))
    checked(tiled.claiming(inverse=(again, *inverse[1:])))


def test_one_certificate_does_not_do_for_another_function() -> None:
    given, other = certified(BIAS), certified("float_two_biases")
    with pytest.raises(CertificateError):
        check(other.before, other.after, given.certificate)
    with pytest.raises(CertificateError):
        check(given.before, given.before, given.certificate)
    # The same program, made again: its variables are others.
    case = next(case for case in ACCEPT if case.name == BIAS)
    sch, _ = oracles.fuse(case)
    again = sch.mod["main"].with_attr("global_symbol", "main")
    with pytest.raises(CertificateError):
        check(given.before, again, given.certificate)


@pytest.mark.parametrize("name", [BIAS, SCALED, SWAPPED, LOCAL, "int8_masked_or_if_asked"])
def test_z3_is_not_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuse_epilogue.verify.prover.has_z3", lambda: False)
    checked(certified(name))
