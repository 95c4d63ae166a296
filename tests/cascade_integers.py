"""Cascades of two reductions written by hand, of any type, with claims written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import prim
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from cascade_by_hand import ByHand
from certified import buffers
from fuse_epilogue import CascadeCertificate, CascadeStage
from fuse_epilogue.tir.build import with_fields
from fuse_epilogue.tir.walk import same, substitute
from fuse_epilogue.verify.certificate.tree import Tree

KEYS, FACTOR = 6, 3
_COMBINERS: dict[str, Any] = {
    "sum": lambda a, b: a + b,
    "max": prim.Max,
    "min": prim.Min,
}


def start_of(monoid: str, dtype: str) -> Any:
    """The identity of a monoid, in a type."""
    if "float" in dtype and monoid != "sum":
        return tirx.const(float("-inf" if monoid == "max" else "inf"), dtype)
    ends = {"max": tirx.min_value, "min": tirx.max_value}
    return ends[monoid](dtype) if monoid in ends else tirx.const(0, dtype)


def kept(state: Any, old: Any, new: Any, count: Any) -> Any:
    """A correction that corrects nothing."""
    return state


@dataclass(frozen=True)
class Chain:
    """``m = head of x``, ``c = between(m)``, ``y = second of term(x, v, c)``, and the loop for it.

    - `x`, `y`: types of x and m, and of v and y.
    - `head`, `second`: the monoids.
    - `term` (Callable): of x, v and c (m where nothing is between).
    - `step` (Callable): of x, v, m as it is then, and the number of keys by then.
    - `correction` (Callable): of the state, m before and m now, and the number of keys before.
    - `tail` (Callable or None): of the finished state and m; None where the state is y itself.
    - `between` (Callable, optional): of m and b.
    - `state`: the type of the state, if it is another one than that of y.
    """

    term: Callable[[Any, Any, Any], Any]
    step: Callable[[Any, Any, Any, Any], Any]
    correction: Callable[[Any, Any, Any, Any], Any] = kept
    rule: str = "defer"
    tail: Callable[[Any, Any], Any] | None = None
    x: str = "int8"
    y: str = "int8"
    head: str = "max"
    second: str = "sum"
    between: Callable[[Any, Any], Any] | None = None
    state: str = ""
    numerics: str = "reassociate"

    def build(self) -> ByHand:
        """Both functions, which share their buffers, and the claims."""
        one, other = _before(self), _after(self)
        mine, theirs = buffers(one), buffers(other)
        swapped = {theirs[name]: var for name, var in mine.items() if name in theirs}
        body = substitute(other.body, swapped)
        if self.tail is None:
            body = _without_tail(body, theirs["state"], mine["y"])
        other = PrimFunc(one.params, body, other.ret_type, other.attrs)
        return ByHand(one, other, _claims(self, one, other))


def _without_tail(body: Any, state: Any, result: Any) -> Any:
    """The body with a result in place of its state, and of the block that copies it."""
    root = body.block
    kept = [var for var in root.alloc_buffers if not same(var, state)]
    block = with_fields(root, body=root.body[0], alloc_buffers=kept)
    return substitute(with_fields(body, block=block), {state: result})


def _before(chain: Chain) -> PrimFunc:
    heads, seconds = _COMBINERS[chain.head], _COMBINERS[chain.second]
    between = chain.between or (lambda m, b: m)
    held = str(between(tirx.Var("m", chain.x), tirx.Var("b", chain.x)).ty.dtype)

    @T.prim_func(s_tir=True)
    def func(
        x: T.Buffer((2, KEYS), chain.x),
        b: T.Buffer((2,), chain.x),
        v: T.Buffer((2, KEYS), chain.y),
        m: T.Buffer((2,), chain.x),
        y: T.Buffer((2,), chain.y),
    ):
        c = T.sblock_alloc_buffer((2,), held)
        for i, k in T.grid(2, KEYS):
            with T.sblock("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    m[vi] = start_of(chain.head, chain.x)
                m[vi] = heads(m[vi], x[vi, vk])
        for i in range(2):
            with T.sblock("c"):
                vi = T.axis.spatial(2, i)
                c[vi] = between(m[vi], b[vi])
        for i, k in T.grid(2, KEYS):
            with T.sblock("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = start_of(chain.second, chain.y)
                y[vi] = seconds(y[vi], chain.term(x[vi, vk], v[vi, vk], c[vi]))

    return func


def _after(chain: Chain) -> PrimFunc:
    heads, seconds = _COMBINERS[chain.head], _COMBINERS[chain.second]
    held = chain.state or chain.y
    tail = chain.tail or (lambda finished, m: finished)

    @T.prim_func(s_tir=True)
    def func(
        x: T.Buffer((2, KEYS), chain.x),
        b: T.Buffer((2,), chain.x),
        v: T.Buffer((2, KEYS), chain.y),
        m: T.Buffer((2,), chain.x),
        y: T.Buffer((2,), chain.y),
    ):
        state = T.sblock_alloc_buffer((2,), held)
        mn = T.sblock_alloc_buffer((1,), chain.x)
        yn = T.sblock_alloc_buffer((1,), held)
        for i, ko in T.grid(2, KEYS // FACTOR):
            with T.sblock("m_cascade"):
                vi, vko = T.axis.remap("SR", [i, ko])
                with T.init():
                    m[vi] = start_of(chain.head, chain.x)
                    state[vi] = start_of(chain.second, held)
                mn[0] = m[vi]
                for kk in range(FACTOR):
                    mn[0] = heads(mn[0], x[vi, vko * FACTOR + kk])
                yn[0] = chain.correction(state[vi], m[vi], mn[0], vko * FACTOR)
                for kk in range(FACTOR):
                    yn[0] = seconds(
                        yn[0],
                        chain.step(
                            x[vi, vko * FACTOR + kk],
                            v[vi, vko * FACTOR + kk],
                            mn[0],
                            vko * FACTOR + FACTOR,
                        ),
                    )
                m[vi] = mn[0]
                state[vi] = yn[0]
        for i in range(2):
            with T.sblock("y"):
                vi = T.axis.spatial(2, i)
                y[vi] = tail(state[vi], m[vi])

    return func


def _claims(chain: Chain, one: PrimFunc, other: PrimFunc) -> CascadeCertificate:
    memory = buffers(one)
    i, k, count, total = (tirx.Var(name, "int32") for name in ("i", "k", "count", "total"))
    names = ("value", "previous", "accumulated", "finished")
    m = {name: tirx.Var(f"m_{name}", chain.x) for name in names}
    y = {name: tirx.Var(f"y_{name}", chain.state or chain.y) for name in names}
    x, b, v = (
        tirx.BufferLoad(memory[name], at) for name, at in (("x", [i, k]), ("b", [i]), ("v", [i, k]))
    )
    between = chain.between or (lambda m, b: m)
    tail = None if chain.tail is None else chain.tail(y["finished"], m["value"])
    state = memory["y"] if chain.tail is None else buffers(other)["state"]
    corrected = chain.rule in ("roll", "mix", "select", "basis")

    def proof(name: str, dtype: str, monoid: str, **more: Any) -> CascadeStage:
        block = next(iter(Tree(one).named(name))).block
        bindings = zip([axis.var for axis in block.iter_vars], [i, k], strict=True)
        return CascadeStage(
            name=name, accumulator=memory[name], indices=(i,), axes=(), axes_extents=(),
            bindings=tuple(bindings), guards=(), part_state=None, monoid=monoid, rolled=None,
            deferred=None, quotient=None, init=start_of(monoid, dtype), **more,
        )  # fmt: skip

    stages = (
        proof(
            "m", chain.x, chain.head, term=x, rule="head", carriers=(), step=x,
            correction=m["accumulated"], state=memory["m"], tail=None,
            state_init=start_of(chain.head, chain.x), **m,
        ),
        proof(
            "y", chain.y, chain.second, term=chain.term(x, v, between(m["value"], b)),
            rule=chain.rule, carriers=(0,) if corrected else (),
            step=chain.step(x, v, m["value"], total),
            correction=chain.correction(y["accumulated"], m["previous"], m["value"], count),
            state=state, tail=tail, state_init=start_of(chain.second, chain.state or chain.y), **y,
        ),
    )  # fmt: skip
    extents = (tirx.const(2, "int32"),), (tirx.const(KEYS, "int32"),)
    return CascadeCertificate(
        chain.numerics, "m_cascade", (i,), extents[0], (k,), extents[1], 0, FACTOR, 1, count, total,
        stages, ("c",),
    )  # fmt: skip
