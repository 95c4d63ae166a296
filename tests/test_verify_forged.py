"""Certificates that are forged, with a function after that agrees with them, are refused.

Several things are changed at once, and what is changed is what no field of a certificate names: how
loops step, what is read outside of innermost blocks, what memory is like, what is not named alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Var, prim
from tvm.tirx import PrimFunc

from certified import Certified, mapped
from certified import block as changed_block
from fuse_epilogue import CascadeCertificate, Certificate, EpilogueProof, TailProof
from fuse_epilogue.tir.walk import same, substitute
from fuse_epilogue.verify import CertificateError, check
from fuse_epilogue.verify.certificate.forms import FORMS
from fuse_epilogue.verify.certificate.tree import Tree
from mutation import without

INT = "int32"


def script(text: str) -> PrimFunc:
    return tvm.script.from_source(f"@T.prim_func(s_tir=True)\n{text}")


# ---- A reduction, another statement, and an epilogue that is moved over it -----------------------


def program(between: str = "") -> PrimFunc:
    return script(f"""
def main(
    A: T.Buffer((6, 8), "int32"), C: T.Buffer((6,), "int32"), D: T.Buffer((6,), "int32"),
    E: T.Buffer((16,), "int32"),
):
    temp = T.sblock_alloc_buffer((6,), "int32")
    for i, k in T.grid(6, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
{between}
    for i in range(6):
        with T.sblock("after"):
            vi = T.axis.spatial(6, i)
            D[vi] = T.max(temp[vi] + C[vi], 0)
""")


def forged(func: PrimFunc) -> Certified:
    """The epilogue as a tail right behind the reduction, and a certificate that says so."""
    tree, root = Tree(func), func.body
    reduction, epilogue = (tree.named(name)[0] for name in ("sum", "after"))
    (vi, vk), (ve,) = (
        [axis.var for axis in each.block.iter_vars] for each in (reduction, epilogue)
    )
    temp, store, x = reduction.block.body.buffer, epilogue.block.body, Var("x", INT)
    loops = [tuple(loop.loop_var for loop in each.loops) for each in (reduction, epilogue)]
    claims = Certificate(
        "reassociate", False, "sum", "sum", "sum", temp, (vi,), temp, (vi,), x, x, x,
        reduction.block.init.value, loops[0], (vi, vk),
        (EpilogueProof("after", (ve,), (vi,), loops[1], (ve,)),),
        (TailProof("after", store.buffer, (vi,), substitute(store.value, {ve: vi})),),
        (), (),
    )  # fmt: skip
    first, *rest, last = root.block.body.seq

    def moved(block: Any) -> Any:
        return tirx.SeqStmt([first, last, *rest]) if rest else block

    return Certified(func, changed_block("root", body=moved)(func), claims)


INNER = """
            for jj in range(4):
                with T.sblock("inner"):
                    vj = T.axis.spatial(16, jj)
                    E[vj] = 1"""
#: Statements that read the output of the epilogue elsewhere than in an innermost block.
READS = {
    "the predicate of an outer block": f"""
    for j in range(1):
        with T.sblock("outer"):
            T.where(D[0] > 0)
            T.reads()
            T.writes(E[0:16])
{INNER}""",
    "a binding of an outer block": f"""
    for j in range(1):
        with T.sblock("outer"):
            vo = T.axis.spatial(4, T.min(T.max(D[0], 0), 3))
            T.reads()
            T.writes(E[0:16])
{INNER.replace("16, jj", "16, vo * 4 + jj")}""",
    "the start of a loop": """
    for j in T.serial(D[0] % 4, D[0] % 4 + 8):
        with T.sblock("other"):
            vj = T.axis.spatial(16, j)
            E[vj] = 1""",
    "an attribute": """
    with T.attr(0, "pragma_something", D[0]):
        for j in range(8):
            with T.sblock("other"):
                vj = T.axis.spatial(16, j)
                E[vj] = 1""",
    "a matched region of an outer block": """
    for j in range(1):
        with T.sblock("outer"):
            T.reads(D[0:6])
            T.writes(E[0:6])
            DD = T.match_buffer(D[0:6], (6,), "int32")
            for jj in range(6):
                with T.sblock("inner"):
                    vj = T.axis.spatial(6, jj)
                    E[vj] = DD[vj]""",
}


def test_an_epilogue_that_is_moved_over_nothing_that_matters() -> None:
    given = forged(program())
    check(given.before, given.after, given.certificate)
    given = forged(program(READS["the start of a loop"].replace("D[0]", "C[0]")))
    check(given.before, given.after, given.certificate)


@pytest.mark.parametrize("what", READS)
def test_an_epilogue_that_is_moved_over_a_reader(what: str) -> None:
    given = forged(program(READS[what]))
    with pytest.raises(CertificateError, match=r"order: 'after' moves over .* both use 'D'"):
        check(given.before, given.after, given.certificate)


JUMPS: dict[str, Callable[[], Any]] = {
    "return": lambda: tirx.Return(prim.IntImm(INT, 0)),
    "break": tirx.Break,
    "continue": tirx.Continue,
    "thread_return": lambda: tirx.Evaluate(tirx.call_intrin(INT, "tirx.thread_return")),
}


@pytest.mark.parametrize("what", JUMPS)
def test_an_epilogue_that_is_moved_over_a_jump(what: str) -> None:
    """Of the block in between, the body is a jump under a condition."""
    func = program("""
    for j in range(1):
        with T.sblock("other"):
            vj = T.axis.spatial(1, j)
            E[vj] = 1""")

    def jumps(store: Any) -> Any:
        return tirx.IfThenElse(prim.EQ(store.value, prim.IntImm(INT, 2)), JUMPS[what](), store)

    given = forged(changed_block("other", body=jumps)(func))
    with pytest.raises(CertificateError, match="a break, continue or return may skip"):
        check(given.before, given.after, given.certificate)


# ---- Loops that leave out iterations, memory, results --------------------------------------------


def stepping(name: str) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the loops around a block: they take every second value of their ranges."""

    def apply(func: PrimFunc) -> PrimFunc:
        around = Tree(func).named(name)[0].loops

        def step(loop: Any) -> Any:
            parts = loop.loop_var, loop.min, loop.extent, loop.kind, loop.body
            return tirx.For(*parts, step=prim.IntImm(str(loop.loop_var.ty.dtype), 2))

        here = [loop.loop_var for loop in around]
        return mapped(tirx.For, step, lambda loop: any(same(loop.loop_var, var) for var in here))(
            func
        )

    return apply


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_loop_with_a_step(place: str) -> None:
    given = forged(program())
    wrong = replace(given, **{place: stepping("after")(getattr(given, place))})
    with pytest.raises(CertificateError, match="block 'after' is in a loop with a step"):
        check(wrong.before, wrong.after, wrong.certificate)


def in_new_memory(given: Certified, **options: Any) -> Certified:
    """The reduction accumulates in a buffer of the fusion's own."""
    old = given.certificate.accumulator
    new = tirx.decl_buffer((6,), INT, name="fresh", **options)

    def swapped(node: Any) -> Any:
        return tvm_ffi.structural_map(node, (Var, lambda var: new if same(var, old) else var))

    tail = replace(given.certificate.tails[0], value=swapped(given.certificate.tails[0].value))
    claims = replace(given.certificate, result=new, removed=(old,), tails=(tail,))
    return Certified(given.before, given.after.with_body(swapped(given.after.body)), claims)


def test_new_memory() -> None:
    given = in_new_memory(forged(program()))
    check(given.before, given.after, given.certificate)


@pytest.mark.parametrize("options", [{"strides": [0]}, {"elem_offset": 3}], ids=str)
def test_new_memory_whose_elements_are_not_its_own(options: dict[str, Any]) -> None:
    numbers = {
        name: [prim.IntImm(INT, each) for each in value]
        if isinstance(value, list)
        else prim.IntImm(INT, value)
        for name, value in options.items()
    }
    given = in_new_memory(forged(program()), **numbers)
    with pytest.raises(CertificateError, match="^result: .* one place"):
        check(given.before, given.after, given.certificate)


def test_another_type_of_result() -> None:
    given = forged(program())
    after = given.after
    wrong = PrimFunc(after.params, after.body, tvm.ir.PrimType(INT), after.attrs)
    with pytest.raises(CertificateError, match="it returns something else"):
        check(given.before, wrong, given.certificate)


# ---- Cascades ------------------------------------------------------------------------------------


def softmax(more: str = "", term: str = "T.exp(X[vi, vk] - M[vi])", name: str = "p") -> PrimFunc:
    return script(f"""
def main(
    X: T.Buffer((4, 10), "float32"), M: T.Buffer((4,), "float32"), S: T.Buffer((4,), "float32"),
    O: T.Buffer((4, 10), "float32"), G: T.Buffer((10,), "int32"), W: T.Buffer((3,), "float32"),
):
    P = T.sblock_alloc_buffer((4, 10), "float32")
    Q = T.sblock_alloc_buffer((4, 10), "float32")
    for i, k in T.grid(4, 10):
        with T.sblock("m"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.min_value("float32")
            M[vi] = T.max(M[vi], X[vi, vk])
    for i, k in T.grid(4, 10):
        with T.sblock("p"):
            vi, vk = T.axis.remap("SS", [i, k])
            P[vi, vk] = {term}
    for i, k in T.grid(4, 10):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + P[vi, vk]
    for i, k in T.grid(4, 10):
        with T.sblock("more"):
            vi, vk = T.axis.remap("SS", [i, k])
            {more or "O[vi, vk] = X[vi, vk]"}
""")


Cascade = tuple[PrimFunc, PrimFunc, CascadeCertificate]


def cascade(func: PrimFunc, **options: Any) -> Cascade:
    sch = s_tir.Schedule(func)
    before = sch.mod["main"]
    certificate = sch.fuse_cascaded_reductions("s", factor=4, **options).certificate
    assert certificate is not None
    check(before, sch.mod["main"], certificate)
    return before, sch.mod["main"], certificate


def without_more(func: PrimFunc, *gone: str) -> PrimFunc:
    """Leave out the last block, and buffers."""

    def kept(body: Any) -> Any:
        rest = list(body.seq)[:-1]
        return rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)

    def allocated(buffers: Any) -> Any:
        return [buffer for buffer in buffers if buffer.name not in gone]

    return changed_block("root", body=kept, alloc_buffers=allocated)(func)


def test_a_block_that_is_gone_and_wrote_an_output() -> None:
    stores = "Q[vi, vk] = X[vi, vk]\n            O[vi, vk] = X[vi, vk]"
    before, after, certificate = cascade(softmax(stores))
    claims = replace(certificate, removed=(*certificate.removed, "Q"))
    with pytest.raises(CertificateError, match="'more' writes more than what is gone"):
        check(before, without_more(after, "Q"), claims)


def test_a_block_of_the_name_of_one_that_is_gone() -> None:
    before, after, certificate = cascade(softmax())
    before = changed_block("more", name_hint="p")(before)
    with pytest.raises(CertificateError, match="there are several blocks 'p'"):
        check(before, without_more(after), certificate)


@pytest.mark.parametrize("name", ["m_cascade", "m_next", "s_next"])
def test_a_loop_with_a_step_in_a_cascade(name: str) -> None:
    before, after, certificate = cascade(softmax())
    with pytest.raises(CertificateError):
        check(before, stepping(name)(after), certificate)


@pytest.mark.parametrize("name", ["m", "p", "s"])
def test_a_loop_with_a_step_before_a_cascade(name: str) -> None:
    before, after, certificate = cascade(softmax())
    with pytest.raises(CertificateError):
        check(stepping(name)(before), after, certificate)


def scratch_in_the_root(func: PrimFunc) -> PrimFunc:
    block = Tree(func).named("m_cascade")[0].block
    func = changed_block("m_cascade", alloc_buffers=[])(func)
    return changed_block("root", alloc_buffers=lambda own: [*own, *block.alloc_buffers])(func)


def rows_at_once(func: PrimFunc) -> PrimFunc:
    rows = Tree(func).named("m_cascade")[0].loops[0].loop_var

    def parallel(loop: Any) -> Any:
        kind = tirx.ForKind.PARALLEL
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body)

    return mapped(tirx.For, parallel, lambda loop: same(loop.loop_var, rows))(func)


def test_rows_that_run_at_once_share_nothing() -> None:
    before, after, certificate = cascade(softmax())
    check(before, rows_at_once(after), certificate)
    check(before, scratch_in_the_root(after), certificate)
    with pytest.raises(CertificateError, match="rows that run at once share 'M_next'"):
        check(before, rows_at_once(scratch_in_the_root(after)), certificate)


GUARDED = "T.exp(X[vi, vk] - M[vi]) * T.if_then_else(G[vk] >= 0, W[G[vk]], T.float32(0))"
UNGUARDED: dict[str, Callable[[Any], Any]] = {
    "a product with the condition": lambda c: c.args[1] * prim.Cast("float32", c.args[0]),
    "a select": lambda c: prim.Select(*c.args),
}


@pytest.mark.parametrize("what", UNGUARDED)
def test_a_guard_that_is_lost_in_a_cascade(what: str) -> None:
    """Over a field it is the same number; but where the guard is false, nothing may be loaded."""
    before, after, certificate = cascade(softmax(term=GUARDED))

    def lost(call: Any) -> Any:
        return UNGUARDED[what](call) if call.op.name.endswith("if_then_else") else call

    wrong = changed_block("s_next", body=lambda body: tvm_ffi.structural_map(body, (Call, lost)))
    with pytest.raises(CertificateError, match="where the function before need not"):
        check(before, wrong(after), certificate)


PAYLOAD = "T.if_then_else(X[vi, vk] == M[vi], {}, T.float32(0))"


@pytest.mark.parametrize("options", [{}, {"parts": 2}])
def test_what_is_inside_its_buffer_for_every_key_needs_no_guard(options: dict[str, int]) -> None:
    """More numbers equal the largest one so far than the largest one."""
    for place in ("vk", "vi // 2"):
        cascade(softmax(term=PAYLOAD.format(f'T.Cast("float32", G[{place}])')), **options)
    wild = s_tir.Schedule(softmax(term=PAYLOAD.format("W[G[vk]]")))
    with pytest.raises(s_tir.ScheduleError, match=r"cascade-condition.*W\[G\[vk\]\] within"):
        wild.fuse_cascaded_reductions("s", factor=4, **options)
    with without("cascade-condition"):
        before = wild.mod["main"]
        certificate = wild.fuse_cascaded_reductions("s", factor=4, **options).certificate
    assert certificate is not None
    with pytest.raises(CertificateError, match="where the function before need not"):
        check(before, wild.mod["main"], certificate)


def weighted() -> PrimFunc:
    return script("""
def main(
    X: T.Buffer((4, 10), "float32"), V: T.Buffer((10, 3), "float32"), M: T.Buffer((4,), "float32"),
    S: T.Buffer((4,), "float32"), O: T.Buffer((4, 3), "float32"),
):
    for i, k in T.grid(4, 10):
        with T.sblock("m"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.min_value("float32")
            M[vi] = T.max(M[vi], X[vi, vk])
    for i, k in T.grid(4, 10):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] += T.exp(X[vi, vk] - M[vi])
    for i, c, k in T.grid(4, 3, 10):
        with T.sblock("o"):
            vi, vc, vk = T.axis.remap("SSR", [i, c, k])
            with T.init():
                O[vi, vc] = T.float32(0)
            O[vi, vc] += T.exp(X[vi, vk] - M[vi]) * V[vk, vc]
""")


def test_scratch_memory_that_is_filled_beyond_the_last_key() -> None:
    """Ten keys in blocks of four."""
    before, after, certificate = cascade(weighted())

    def everywhere(realize: Any) -> Any:
        return s_tir.SBlockRealize(realize.iter_values, tirx.const(True, "bool"), realize.block)

    weights = mapped(
        s_tir.SBlockRealize, everywhere, lambda each: each.block.name_hint == "M_weight"
    )
    filled = weights(after)
    with pytest.raises(CertificateError, match="where the function before need not"):
        check(before, filled, certificate)


# ---- The forms of fields -------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    *(None, True, -1, 1 << 31, 10**400, 1.5, "", "\ud800", b"x", (), (None,), ((),), [], {}, set()),
    *(Var("y", "float16"), Var("h", "handle"), tirx.decl_buffer((2,), name="é")),
    *(prim.IntImm("int64", 1 << 62), prim.FloatImm("float64", float("nan")), tirx.Evaluate(0)),
    *(Var("v", "float32x4"), tvm.ir.Range(0, 4), object(), (1, 2), ("a",), ((1, 2, 3),)),
)


#: Fields that a cascade may not need, or that are names of variables alone.
UNUSED = (
    *("rolled", "deferred", "quotient", "count", "total"),
    *("value", "previous", "accumulated", "finished"),
)


def owners(certificate: Any) -> dict[str, Any]:
    """A certificate and its parts, by what comes before the names of their fields."""
    found = {"": certificate}
    for name in ("epilogues", "tails", "stages"):
        for place, part in enumerate(getattr(certificate, name, ())):
            found[f"{name}[{place}]."] = part
    return found


def changed(certificate: Any, prefix: str, name: str, value: Any) -> Any:
    if not prefix:
        return replace(certificate, **{name: value})
    where, _, place = prefix[:-2].partition("[")
    parts = list(getattr(certificate, where))
    parts[int(place)] = replace(parts[int(place)], **{name: value})
    return replace(certificate, **{where: tuple(parts)})


@pytest.mark.parametrize("kind", ["fusion", "cascade"])
def test_what_is_not_of_its_form_is_refused(kind: str) -> None:
    """Nothing else is ever raised, whatever a field holds: alone, and as an item of a tuple."""
    if kind == "fusion":
        given = forged(program())
        functions, certificate = (given.before, given.after), given.certificate
    else:
        before, after, certificate = cascade(softmax(), parts=2)
        functions = before, after
    for prefix, owner in owners(certificate).items():
        for name in FORMS[type(owner)]:
            old = getattr(owner, name)
            for junk in JUNK:
                values = [junk, (*old, junk)] if isinstance(old, tuple) else [junk]
                for value in values:
                    try:
                        check(*functions, changed(certificate, prefix, name, value), timeout=0.1)
                    except CertificateError:
                        continue
                    empty = isinstance(value, tuple) and not value and not old
                    assert value is old or empty or name in UNUSED, f"{prefix}{name}"


# ---- A condition of a symbolic loop --------------------------------------------------------------


def test_a_symbolic_axis_makes_no_false_assumption() -> None:
    """Its end is one more than its type holds: that bound must not wrap to a contradiction."""
    before = script("""
def main(a: T.handle, d: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 8), "int32")
    D = T.match_buffer(d, (n,), "int32")
    temp = T.sblock_alloc_buffer((n,), "int32")
    for i, k in T.grid(n, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(n):
        with T.sblock("after"):
            vi = T.axis.spatial(n, i)
            D[vi] = T.if_then_else(vi < 3, temp[vi], 0)
""")
    schedule = s_tir.Schedule(before)
    certificate = schedule.fuse_reduction_epilogue("sum").certificate
    after = schedule.mod["main"]
    check(before, after, certificate)
    body = tvm_ffi.structural_map(after.body, (prim.LT, lambda node: prim.GT(node.a, node.b)))
    with pytest.raises(CertificateError, match="value"):
        check(before, after.with_body(body), certificate)


def test_a_type_that_the_checker_does_not_know_is_named() -> None:
    before = script("""
def main(A: T.Buffer((4, 8), "float8_e4m3fn"), D: T.Buffer((4,), "float8_e4m3fn")):
    temp = T.sblock_alloc_buffer((4,), "float8_e4m3fn")
    for i, k in T.grid(4, 8):
        with T.sblock("max"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.float8_e4m3fn(0)
            temp[vi] = T.max(temp[vi], A[vi, vk])
    for i in range(4):
        with T.sblock("after"):
            vi = T.axis.spatial(4, i)
            D[vi] = temp[vi]
""")
    schedule = s_tir.Schedule(before)
    certificate = schedule.fuse_reduction_epilogue("max").certificate
    with pytest.raises(CertificateError, match="hole: .* does not know its type, float8_e4m3fn"):
        check(before, schedule.mod["main"], certificate)
