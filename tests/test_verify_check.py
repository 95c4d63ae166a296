"""Certificates: every one that a fusion gives is accepted, every tampered one is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Var, prim
from tvm.script import tirx as T

import oracles
from certified import Certified, block, certified, filling
from fuse_epilogue.verify import CertificateError, check
from programs import ACCEPT


def checked(given: Certified) -> None:
    check(given.before, given.after, given.certificate)


def refused(given: Certified, claim: str) -> str:
    """The reason why a claim is refused."""
    with pytest.raises(CertificateError) as caught:
        checked(given)
    assert caught.value.claim == claim, caught.value
    assert str(caught.value).startswith(f"{claim}: ")
    return str(caught.value)


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


def chain(steps: int, step: Callable[[Any], Any]) -> tirx.PrimFunc:
    """A reduction, and blocks one behind the other that each do the step with what came before."""

    @T.prim_func(s_tir=True)
    def start(A: T.Buffer((4, 8), "int32"), D: T.Buffer((4,), "int32")):
        temp = T.sblock_alloc_buffer((4,), "int32")
        for i, k in T.grid(4, 8):
            with T.sblock("red"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]

    root = start.body.block
    buffers = [root.alloc_buffers[0]]
    nests = [root.body]
    for place in range(steps):
        last = place == steps - 1
        target = start.params[1] if last else tirx.decl_buffer((4,), "int32", name=f"step{place}")
        source = buffers[-1]
        nest = filling(f"step{place}", target, source)
        nests.append(value_stored(nest, step))
        buffers.append(target)
    return block("root", alloc_buffers=buffers[:-1], body=tirx.SeqStmt(nests))(start)


def value_stored(nest: tirx.For, step: Callable[[Any], Any]) -> tirx.For:
    """A loop around a block, with another function of what it stores."""

    def change(store: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(store.buffer, step(store.value), list(store.indices))

    return tvm_ffi.structural_map(nest, (tirx.BufferStore, change))


@pytest.mark.parametrize(
    "step",
    [lambda x: x * x, lambda x: x + x, lambda x: tirx.max(x, x + 1)],
    ids=["square", "double", "max"],
)
def test_chains_that_use_a_value_twice(step: Callable[[Any], Any]) -> None:
    """48 steps: written out, the last one would use the sum 2**48 times."""
    before = chain(48, step)
    sch = tvm.s_tir.Schedule(before)
    report = sch.fuse_reduction_epilogue("red")
    check(before, sch.mod["main"], report.certificate)


def test_chains_of_blocks_and_of_operators_may_be_long() -> None:
    """Python's parser, for one, gives up at 200 brackets."""

    def nested(x: Any) -> Any:
        for place in range(300):
            x = tirx.max(x, place - 50) if place % 2 else tirx.min(x, 400 - place)
        return x

    def summed(x: Any) -> Any:
        data = tirx.BufferLoad(x.source, list(x.indices))
        for place in range(1000):
            x = x + data * place
        return x

    for before in (chain(1, nested), chain(1, summed), chain(220, lambda x: x + 1)):
        sch = tvm.s_tir.Schedule(before)
        report = sch.fuse_reduction_epilogue("red")
        given = Certified(before, sch.mod["main"], report.certificate)
        checked(given)
        if not report.certificate.tails:
            refused(given.claiming(absorbed=plus_one(report.certificate.absorbed)), "absorbed")
        else:
            value = report.certificate.tails[0].value
            refused(given.tail(0, value=plus_one(value)), "tails[0].value")


def test_what_is_nested_too_deeply_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object, **__: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("fuse_epilogue.verify.certificate.claim_values.Values", deep)
    with pytest.raises(CertificateError, match="too large .*: too deep"):
        checked(certified(BIAS))


def test_the_maximum_with_minus_infinity_may_be_left_out() -> None:
    """It changes nothing but a NaN: where that matters, it is a tail."""

    @T.prim_func(s_tir=True)
    def before(A: T.Buffer((4, 8), "float32"), D: T.Buffer((4,), "float32")):
        temp = T.sblock_alloc_buffer((4,), "float32")
        for i, k in T.grid(4, 8):
            with T.sblock("red"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = T.min_value("float32")
                temp[vi] = T.max(temp[vi], A[vi, vk])
        for i in range(4):
            with T.sblock("epi"):
                vi = T.axis.spatial(4, i)
                D[vi] = T.max(temp[vi], T.float32("-inf"))

    for numerics, tails in (("reassociate", 0), ("exact", 1)):
        sch = tvm.s_tir.Schedule(before)
        start = sch.mod["main"]
        report = sch.fuse_reduction_epilogue("red", numerics=numerics)
        given = Certified(start, sch.mod["main"], report.certificate)
        assert len(given.certificate.tails) == tails
        checked(given)
        if not tails:
            refused(given.claiming(numerics="exact"), "absorbed")


def test_external_functions_are_what_they_are_called() -> None:
    given = certified("pure_extern_bias")
    checked(given)

    def calls(name: str, change: Callable[..., Any]) -> Callable[[Any], Any]:
        def one(call: Call) -> Any:
            extern = call.op.name == "tirx.call_pure_extern"
            return change("float32", name, *call.args[1:]) if extern else call

        return lambda node: tvm_ffi.structural_map(node, (Call, one))

    def claiming(before: Callable[[Any], Any], after: Callable[[Any], Any]) -> Certified:
        claims = {name: after(getattr(given.certificate, name)) for name in ("absorbed", "init")}
        bodies = given.before.with_body(before(given.before.body)), after(given.after.body)
        return Certified(
            bodies[0],
            given.after.with_body(bodies[1]),
            dataclasses.replace(given.certificate, **claims),
        )

    same, other = calls("fabsf", T.call_pure_extern), calls("sqrtf", T.call_pure_extern)
    checked(claiming(other, other))
    assert "does not get what it got" in refused(claiming(same, other), "absorbed")
    # Whether a function has effects is not said by its name.
    effects = calls("fabsf", T.call_extern)
    assert "call_extern may have effects" in refused(claiming(effects, effects), "init")


def test_too_many_terms_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuse_epilogue.verify.certificate.value_terms._TERMS", 12)
    with pytest.raises(CertificateError, match="too many terms"):
        checked(certified(BIAS))


LETS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a bias": lambda v, x, c: prim.Let(v, c, x + v),
    "of the sum, twice": lambda v, x, c: prim.Let(v, x + c, v * v + v),
}


@pytest.mark.parametrize("what", LETS)
def test_variables_that_an_epilogue_defines(what: str) -> None:
    v = Var("v", "int32")

    def finish(x: Any) -> Any:
        data = tirx.BufferLoad(x.source, list(x.indices))
        return LETS[what](v, x, data * 2)

    before = chain(1, finish)
    sch = tvm.s_tir.Schedule(before)
    report = sch.fuse_reduction_epilogue("red")
    given = Certified(before, sch.mod["main"], report.certificate)
    checked(given)
    # A variable that nothing defines, under the name of one that something does.
    claims = given.certificate
    if claims.tails:
        open_value = claims.tails[0].value + v
        refused(given.tail(0, value=open_value), "tails[0].value")
    else:
        refused(given.claiming(absorbed=claims.absorbed + v), "absorbed")


@pytest.mark.parametrize(
    "place, message",
    [
        (0, "before must be a PrimFunc or a Schedule, not NoneType"),
        (1, "after must be a PrimFunc or a Schedule, not NoneType"),
        (
            2,
            "certificate must be a Certificate or a CascadeCertificate, not NoneType: .*report.*",
        ),
    ],
)
def test_what_is_of_another_type_is_named(place: int, message: str) -> None:
    given = certified(BIAS)
    arguments: list[Any] = [given.before, given.after, given.certificate]
    arguments[place] = None
    with pytest.raises(TypeError, match=f"^{message}$"):
        check(*arguments)


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
    monkeypatch.setattr("fuse_epilogue.verify.proof.prover.has_z3", lambda: False)
    checked(certified(name))
