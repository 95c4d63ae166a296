"""The function of a generated program, and what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.tirx import PrimFunc

from cascades.bounded import Bounded, Rules, exactly, expand, where
from fuse_epilogue.tir.build import with_fields
from fuse_epilogue.tir.walk import substitute

from .expressions import in_numbers, in_tvm
from .spec import Program, mentions

#: For each layout of x the order of (row, head, key).
ORDER = {"last": (0, 1, 2), "first": (2, 0, 1), "middle": (0, 2, 1)}


class _Builder:
    """Makes the blocks of a program one after the other."""

    def __init__(self, program: Program) -> None:
        self.p = program
        self.n: Any = te.var("n") if program.symbolic else program.keys
        self.grid = (program.rows, program.heads)
        full = (*self.grid, self.n)
        shape = [full[axis] for axis in ORDER[program.layout]]
        dtype, wide = program.dtype, program.wide or program.dtype
        self.x = te.placeholder(shape, dtype, name="x")
        self.later = te.placeholder(shape, dtype, name="later")
        self.reads_later = program.later == "read before" and mentions(program.term, "x")
        self.b = te.placeholder((self.n,), dtype, name="b")
        kv = program.heads // program.group
        self.v = te.placeholder((kv, self.n), wide, name="v")
        columns = (program.columns,) if program.columns else ()
        self.w = te.placeholder((kv, self.n, *columns), dtype, name="w")
        self.mask = te.placeholder((*self.grid, self.n), "int8", name="mask")
        self.z = self._stored()
        self.r = self._head()
        self.c = self._between()

    def _z(self, i: Any, h: Any, k: Any) -> Any:
        return self._z_of(self.x, i, h, k)

    def _z_of(self, x: Any, *at: Any) -> Any:
        i, h, k = at
        names = {"x": x(*[at[axis] for axis in ORDER[self.p.layout]]), "b": self.b[k]}
        value = in_tvm(self.p.z, names, self.p.dtype)
        if self.p.mask == "none":
            return value
        lowest = tirx.const(-np.inf, self.p.dtype)
        if self.p.mask == "select":
            return tirx.Select(self.mask[i, h, k] != 0, value, lowest)
        return tirx.Select(k <= i + 1, value, lowest)

    def _stored(self) -> Any:
        if not self.p.stored:
            return self._z
        return te.compute((*self.grid, self.n), self._z, name="z")

    def _head(self) -> Any:
        p, k = self.p, te.reduce_axis((0, self.n), "k")

        def at(*axes: Any) -> Any:
            i, h = axes[::-1] if p.transposed else axes
            z = self.z(i, h, k)
            return reducer(z * z if p.head == "squares" else z, axis=k)

        reducer = _reducer(p)
        return te.compute(self.grid[::-1] if p.transposed else self.grid, at, name="head")

    def _row(self, i: Any, h: Any) -> Any:
        if self.p.fault == "row":
            i = te.max(i - 1, 0)
        return self.r[h, i] if self.p.transposed else self.r[i, h]

    def _between(self) -> Any:
        p = self.p
        if p.between is None:
            return None

        def at(i: Any, h: Any) -> Any:
            return in_tvm(p.between, {"r": self._row(i, h), "b": self.b[0]}, p.dtype)

        return te.compute(self.grid, at, name="between")

    def term(self, i: Any, h: Any, k: Any) -> Any:
        source = self.n - 1 - k if self.p.fault == "reversed" else k
        names = {
            "x": self._z_of(self.later, i, h, source) if self.reads_later else self.z(i, h, source),
            "r": self._row(i, h),
            "v": self.v[h // self.p.group, k],
        }
        wide = self.p.wide or self.p.dtype
        names |= {"n": tirx.const(self.p.keys, wide)}
        if self.c is not None:
            names["c"] = self.c[i, h]
        if self.p.wide:
            names = {name: value.astype(wide) for name, value in names.items()}
        return in_tvm(self.p.term, names, wide)

    def finish(self) -> list[Any]:
        p = self.p
        t = (
            te.compute((*self.grid, self.n), self.term, name="term")
            if p.held or p.reader in ("terms", "normal")
            else self.term
        )
        k = te.reduce_axis((0, self.n - (p.fault == "keys")), "k")
        reducer = {"sum": te.sum, "max": te.max, "min": te.min}[p.second]
        s = te.compute(self.grid, lambda i, h: reducer(t(i, h, k), axis=k), name="second")
        outputs = [s]
        if p.third is not None:
            outputs = [s, self._third(t, s)]
        if p.reader == "head":
            outputs.append(self.r)
        if p.reader == "terms":
            outputs.append(t)
        if p.reader == "normal":
            outputs.append(
                te.compute(
                    (*self.grid, self.n), lambda i, h, k: t(i, h, k) / s[i, h], name="normal"
                )
            )
        return [*self.inputs(), *outputs]

    def _third(self, t: Any, s: Any) -> Any:
        p, k = self.p, te.reduce_axis((0, self.n), "k")

        def at(i: Any, h: Any, *column: Any) -> Any:
            names = {"t": t(i, h, k), "s": s[i, h], "w": self.w(h // p.group, k, *column)}
            return te.sum(in_tvm(p.third, names, p.dtype), axis=k)

        columns = (p.columns,) if p.columns else ()
        return te.compute((*self.grid, *columns), at, name="third")

    def inputs(self) -> list[Any]:
        p = self.p
        some = [self.x, self.b, *([self.later] if self.reads_later else [])]
        if mentions(p.term, "v"):
            some.append(self.v)
        if p.third is not None:
            some.append(self.w)
        return [*some, self.mask] if p.mask == "select" else some


def _reducer(program: Program) -> Any:
    if program.head in ("sum", "squares"):
        return te.sum
    largest = program.head == "max"
    if not program.infinite:
        return te.max if largest else te.min
    start = -np.inf if largest else np.inf
    return te.comm_reducer(
        lambda a, b: te.max(a, b) if largest else te.min(a, b),
        lambda dtype: tirx.const(start, dtype),
    )


def build(program: Program) -> PrimFunc:
    """Return the function of a program."""
    builder = _Builder(program)
    func = te.create_prim_func(builder.finish())
    return _overwritten(func, builder) if program.later else func


def _overwritten(func: PrimFunc, builder: _Builder) -> PrimFunc:
    """The function with a block at its end that overwrites x by another parameter."""
    x, later = builder.x, builder.later
    copy = te.create_prim_func(
        [later, te.compute(x.shape, lambda *at: later[at], name="overwrite")]
    )
    swapped = {copy.params[1]: func.params[0]}
    if builder.reads_later:
        swapped[copy.params[0]] = func.params[2]
    nest = substitute(copy.body.block.body, swapped)
    root = func.body.block
    body = tirx.SeqStmt(
        [*root.body, nest] if isinstance(root.body, tirx.SeqStmt) else [root.body, nest]
    )
    realize = with_fields(func.body, block=with_fields(root, body=body))
    params = [*func.params, *([] if builder.reads_later else copy.params[:1])]
    return PrimFunc(params, realize, func.ret_type, func.attrs)


def block_called(program: Program) -> str:
    """Return the name of the block that the primitive is called with."""
    if program.called == "last":
        return "third" if program.third is not None else "second"
    if program.called == "term":
        held = program.held or program.reader in ("terms", "normal")
        return "term" if held else "second"
    read = mentions(program.term, "r") or mentions(program.term, "c") or program.reader == "head"
    if program.called == "head" and not read:
        return "second"  # Nothing reads the head: there is none.
    return program.called


# ---- What it computes ------------------------------------------------------------------------


def formula(program: Program, arrays: dict[str, Any], blocks: int) -> dict[str, Bounded]:
    """Return every output as numbers with a bound of their error."""
    with np.errstate(all="ignore"):
        return _formula(program, arrays, Rules(program.dtype, blocks))


def _formula(p: Program, arrays: dict[str, Any], rules: Rules) -> dict[str, Bounded]:
    axes = np.argsort(ORDER[p.layout])
    x = exactly(arrays["x"].transpose(axes), rules)

    def masked(x: Bounded) -> Bounded:
        z = in_numbers(p.z, {"x": x, "b": exactly(arrays["b"], rules)})
        z = z.moved(lambda a: np.broadcast_to(a, x.shape))
        lowest = np.asarray(-np.inf, p.dtype)
        if p.mask == "select":
            z = where(arrays["mask"] != 0, z, lowest)
        if p.mask == "causal":
            key, row = np.arange(x.shape[2]), np.arange(p.rows)[:, None, None]
            z = where(np.broadcast_to(key <= row + 1, x.shape), z, lowest)
        return z

    z = own = masked(x)
    if p.later == "read before":
        own = masked(exactly(arrays["later"].transpose(axes), rules))
    r = _head_of(p, z)
    if p.fault == "row":
        r = r.moved(lambda a: a[np.maximum(np.arange(p.rows) - 1, 0)])
    read = own[..., ::-1] if p.fault == "reversed" else own
    names = {"x": read, "r": expand(r)}
    if p.between is not None:
        first = exactly(arrays["b"][:1], rules).moved(lambda a: np.broadcast_to(a, r.shape))
        names["c"] = expand(in_numbers(p.between, {"r": r, "b": first}))
    if "v" in arrays:
        names["v"] = _shared(exactly(arrays["v"], rules), p)
    t = in_numbers(p.term, names).moved(lambda a: np.broadcast_to(a, x.shape))
    summed = t[..., :-1] if p.fault == "keys" else t
    s = _second_of(p, summed)
    found = {"second": s}
    if p.third is not None:
        found["third"] = _third_of(p, t, s, exactly(arrays["w"], rules))
    if p.reader == "head":
        head = _head_of(p, z)
        found["head"] = head.moved(np.transpose) if p.transposed else head
    if p.reader == "terms":
        found["term"] = t
    if p.reader == "normal":
        found["normal"] = t / expand(s)
    return found


def _shared(v: Bounded, p: Program) -> Bounded:
    """A factor of heads in groups, for each head, with an axis of rows."""
    return v.moved(lambda a: np.repeat(a, p.group, 0)[None])


def _head_of(p: Program, z: Bounded) -> Bounded:
    if p.head == "sum":
        return z.sum()
    if p.head == "squares":
        return (z * z).sum()
    if p.infinite:
        pick = np.max if p.head == "max" else np.min
        return Bounded(pick(z.value, -1), z.error.max(-1), z.rules)
    return z.max() if p.head == "max" else z.min()


def _second_of(p: Program, t: Bounded) -> Bounded:
    if not t.shape[-1]:
        # Nothing runs: what was there before stays.
        nothing = np.full(t.shape[:-1], np.nan)
        return Bounded(nothing, np.inf, t.rules)
    return {"sum": t.sum, "max": t.max, "min": t.min}[p.second]()


def _third_of(p: Program, t: Bounded, s: Bounded, w: Bounded) -> Bounded:
    w = _shared(w, p)
    if not p.columns:
        return (
            in_numbers(p.third, {"t": t, "s": expand(s), "w": w})
            .moved(lambda a: np.broadcast_to(a, t.shape))
            .sum()
        )
    names = {"t": expand(t), "s": expand(expand(s)), "w": w}
    shape = (*t.shape, p.columns)
    return in_numbers(p.third, names).moved(lambda a: np.broadcast_to(a, shape)).sum(2)
