"""Attention in one loop over blocks of keys, written by hand, and wrong in one of ten ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from certified import buffers
from fuse_epilogue import CascadeCertificate, CascadeStage
from fuse_epilogue.tir.walk import substitute
from fuse_epilogue.verify.certificate.tree import Tree

F = "float32"
ROWS, COLUMNS, FACTOR = 2, 2, 3
LOWEST = tirx.min_value(F)


@dataclass(frozen=True)
class Form:
    """How the rolled loop is written; the defaults are right.

    - `quotient`: ``"right"``, ``"omitted"``, ``"inverted"``, or ``"of itself"``: exp(m' - m').
    - `late`: correct a sum after the terms of the block are added.
    - `start`: what the sum of exponentials starts from.
    - `twice`: divide in every term, and at the end as well.
    - `infinite`: start the maximum from -inf.
    - `guarded`: keep the sums where the maximum stays, and add nothing where it is -inf still.
    - `stale`: terms read the maximum before the block.
    - `scaled_init`: the product starts from something that the quotient scales as well.
    - `final`: terms read the maximum of all keys, the sums are corrected all the same.
    """

    quotient: str = "right"
    late: bool = False
    start: float = 0.0
    twice: bool = False
    infinite: bool = False
    guarded: bool = False
    stale: bool = False
    scaled_init: bool = False
    final: bool = False


#: By name: the ten ways in which a checker must not let it pass.
WRONG = {
    "the quotient is omitted": Form(quotient="omitted"),
    "the quotient is inverted": Form(quotient="inverted"),
    "the quotient is of the new maximum twice": Form(quotient="of itself"),
    "corrected after the terms are added": Form(late=True),
    "the sum starts from one": Form(start=1.0),
    "divided in the loop and after it": Form(twice=True),
    "the guard is dropped": Form(infinite=True),
    "the maximum is updated after the terms": Form(stale=True),
    "the start of the product is scaled": Form(scaled_init=True),
    "the last maximum is read in the loop": Form(final=True),
}


def _lowest(infinite: bool) -> Any:
    return tirx.const(-np.inf, F) if infinite else LOWEST


def before(keys: int, infinite: bool = False, bias: bool = False) -> PrimFunc:
    """Maximum, exponentials, their sum, weights, and the product; from a bias if asked for."""
    lowest = _lowest(infinite)

    @T.prim_func(s_tir=True)
    def func(
        x: T.Buffer((ROWS, keys), F),
        v: T.Buffer((keys, COLUMNS), F),
        c: T.Buffer((COLUMNS,), F),
        o: T.Buffer((ROWS, COLUMNS), F),
    ):
        m, s = T.sblock_alloc_buffer((ROWS,), F), T.sblock_alloc_buffer((ROWS,), F)
        e = T.sblock_alloc_buffer((ROWS, keys), F)
        p = T.sblock_alloc_buffer((ROWS, keys), F)
        for i, k in T.grid(ROWS, keys):
            with T.sblock("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    m[vi] = lowest
                m[vi] = T.max(m[vi], x[vi, vk])
        for i, k in T.grid(ROWS, keys):
            with T.sblock("e"):
                vi, vk = T.axis.remap("SS", [i, k])
                e[vi, vk] = T.exp(x[vi, vk] - m[vi])
        for i, k in T.grid(ROWS, keys):
            with T.sblock("s"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    s[vi] = T.float32(0)
                s[vi] = s[vi] + e[vi, vk]
        for i, k in T.grid(ROWS, keys):
            with T.sblock("p"):
                vi, vk = T.axis.remap("SS", [i, k])
                p[vi, vk] = e[vi, vk] / s[vi]
        for i, j, k in T.grid(ROWS, COLUMNS, keys):
            with T.sblock("o"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    o[vi, vj] = c[vj] if bias else T.float32(0)
                o[vi, vj] = o[vi, vj] + p[vi, vk] * v[vk, vj]

    return func


def after(keys: int, form: Form = Form()) -> PrimFunc:  # noqa: B008 - it is frozen
    """The same in one loop over blocks of keys, the division deferred."""
    lowest, start = _lowest(form.infinite), tirx.const(form.start, F)
    blocks = -(-keys // FACTOR)

    def quotient(old: Any, new: Any) -> Any:
        apart = {
            "right": T.exp(old - new),
            "omitted": T.float32(1),
            "inverted": T.exp(new - old),
            "of itself": T.exp(new - new),
        }[form.quotient]
        return T.Select(old == new, T.float32(1), apart) if form.guarded else apart

    def weight(x: Any, new: Any) -> Any:
        held = T.exp(x - new)
        guarded = form.guarded and form.infinite
        return T.Select(new == lowest, T.float32(0), held) if guarded else held

    @T.prim_func(s_tir=True)
    def func(
        x: T.Buffer((ROWS, keys), F),
        v: T.Buffer((keys, COLUMNS), F),
        c: T.Buffer((COLUMNS,), F),
        o: T.Buffer((ROWS, COLUMNS), F),
    ):
        m, s = T.sblock_alloc_buffer((ROWS,), F), T.sblock_alloc_buffer((ROWS,), F)
        if form.final:
            last = T.sblock_alloc_buffer((ROWS,), F)
        state = T.sblock_alloc_buffer((ROWS, COLUMNS), F)
        mn = T.sblock_alloc_buffer((1,), F)
        sn = T.sblock_alloc_buffer((1,), F)
        q = T.sblock_alloc_buffer((1,), F)
        on = T.sblock_alloc_buffer((COLUMNS,), F)
        if form.final:
            for i, k in T.grid(ROWS, keys):
                with T.sblock("last"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        last[vi] = lowest
                    last[vi] = T.max(last[vi], x[vi, vk])
        for i, ko in T.grid(ROWS, blocks):
            with T.sblock("m_cascade"):
                vi, vko = T.axis.remap("SR", [i, ko])
                with T.init():
                    m[vi] = lowest
                    s[vi] = start
                    for j in range(COLUMNS):
                        state[vi, j] = c[j] if form.scaled_init else T.float32(0)
                mn[0] = m[vi]
                for kk in range(FACTOR):
                    if vko * FACTOR + kk < keys:
                        mn[0] = T.max(mn[0], x[vi, vko * FACTOR + kk])
                q[0] = quotient(m[vi], mn[0])
                sn[0] = s[vi] if form.late else s[vi] * q[0]
                for kk in range(FACTOR):
                    if vko * FACTOR + kk < keys:
                        sn[0] = sn[0] + weight(
                            x[vi, vko * FACTOR + kk],
                            m[vi] if form.stale else last[vi] if form.final else mn[0],
                        )
                if form.late:
                    sn[0] = sn[0] * q[0]
                for j in range(COLUMNS):
                    on[j] = state[vi, j] * q[0]
                    for kk in range(FACTOR):
                        if vko * FACTOR + kk < keys:
                            on[j] = on[j] + weight(
                                x[vi, vko * FACTOR + kk],
                                m[vi] if form.stale else last[vi] if form.final else mn[0],
                            ) * v[vko * FACTOR + kk, j] / (sn[0] if form.twice else T.float32(1))
                m[vi] = mn[0]
                s[vi] = sn[0]
                for j in range(COLUMNS):
                    state[vi, j] = on[j]
        for i, j in T.grid(ROWS, COLUMNS):
            with T.sblock("o"):
                vi, vj = T.axis.remap("SS", [i, j])
                o[vi, vj] = state[vi, vj] / s[vi]

    return func


# ---- With the claims of a certificate --------------------------------------------------------


@dataclass(frozen=True)
class ByHand:
    """Both functions, which share their buffers, and the claims."""

    before: PrimFunc
    after: PrimFunc
    claims: CascadeCertificate

    def claiming(self, **changes: Any) -> ByHand:
        """The same functions with other claims."""
        return replace(self, claims=replace(self.claims, **changes))

    def stage(self, place: int, **changes: Any) -> ByHand:
        """The same functions with other claims about a stage."""
        stages = list(self.claims.stages)
        stages[place] = replace(stages[place], **changes)
        return self.claiming(stages=tuple(stages))


def by_hand(keys: int = 5, form: Form = Form()) -> ByHand:  # noqa: B008 - it is frozen
    """Both functions with the claims of the right form."""
    one = before(keys, infinite=form.infinite, bias=form.scaled_init)
    other = after(keys, form)
    mine, theirs = buffers(one), buffers(other)
    swapped = {theirs[name]: var for name, var in mine.items() if name in theirs}
    body = substitute(other.body, swapped)
    other = PrimFunc(one.params, body, other.ret_type, other.attrs)
    return ByHand(one, other, _claims(one, other, keys, form))


def _claims(one: PrimFunc, other: PrimFunc, keys: int, form: Form) -> CascadeCertificate:
    memory, state = buffers(one), buffers(other)["state"]
    i, k, j = (tirx.Var(name, "int32") for name in "ikj")
    names = ("value", "previous", "accumulated", "finished")
    m, s, o = ({n: tirx.Var(f"{stage}_{n}", F) for n in names} for stage in "mso")
    x, v = tirx.BufferLoad(memory["x"], [i, k]), tirx.BufferLoad(memory["v"], [k, j])
    weight = tirx.exp(x - m["value"])
    quotient = tirx.exp(m["previous"] - m["value"])
    lowest, zero = _lowest(form.infinite), tirx.const(0.0, F)
    start = tirx.BufferLoad(memory["c"], [j]) if form.scaled_init else zero

    def proof(name: str, axes: tuple[Any, ...], **more: Any) -> CascadeStage:
        block = next(iter(Tree(one).named(name))).block
        bindings = zip([axis.var for axis in block.iter_vars], [i, *axes, k], strict=True)
        return CascadeStage(
            name=name,
            accumulator=memory[name],
            indices=(i, *axes),
            axes=axes,
            axes_extents=tuple(tirx.const(COLUMNS, "int32") for _ in axes),
            bindings=tuple(bindings),
            guards=(),
            part_state=None,
            **more,
        )

    rolled: Any = {"monoid": "sum", "carriers": (0,), "quotient": quotient, "state_init": zero}
    stages = (
        proof(
            "m", (), monoid="max", init=lowest, term=x, rule="head", carriers=(), step=x,
            correction=m["accumulated"], rolled=None, deferred=None, quotient=None,
            state=memory["m"], state_init=lowest, tail=None, **m,
        ),
        proof(
            "s", (), init=zero, term=weight, rule="roll", step=weight,
            correction=s["accumulated"] * quotient, rolled=weight, deferred=None,
            state=memory["s"], tail=None, **rolled, **s,
        ),
        proof(
            "o", (j,), init=start, term=weight / s["value"] * v, rule="mix",
            step=weight * v, correction=o["accumulated"] * quotient, rolled=weight,
            deferred=1.0 / s["value"], state=state, tail=o["finished"] / s["value"],
            **rolled, **o,
        ),
    )  # fmt: skip
    extents = (tirx.const(ROWS, "int32"),), (tirx.const(keys, "int32"),)
    count, total = (tirx.Var(name, "int32") for name in ("count", "total"))
    return CascadeCertificate(
        "reassociate", "m_cascade", (i,), extents[0], (k,), extents[1], 0, FACTOR, 1, count, total,
        stages, ("e", "p"),
    )  # fmt: skip
