"""The proof of a fused cascade, as a record that can be checked without trusting the prover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ._arguments import Numerics
from ._printed import Printed, as_line, element, quoted


@dataclass(frozen=True, repr=False)
class CascadeStage(Printed):
    """One reduction of a cascade, and what was proved about it.

    Expressions are TVM's, in the rows and keys of the certificate, the stage's own ``axes``, and
    variables that stand for results: ``value`` and ``previous`` of each stage, its ``accumulated``
    and ``finished`` state.

    Attributes
    ----------
    name : str
        Name of the block before the call.
    monoid : str
        ``"sum"``, ``"max"`` or ``"min"``.
    rule : str
        ``"head"`` (reads no other stage), ``"defer"``, ``"roll"``, ``"mix"`` (rolls one factor and
        defers another), ``"basis"`` or ``"select"``.
    accumulator : tvm.ir.Var
        The buffer that holds the result, before and after the call.
    indices : tuple[tvm.ir.Expr, ...]
        The element of it.
    axes, axes_extents : tuple
        The spatial axes that are not rows, as fresh variables, and their extents.
    bindings : tuple[tuple[tvm.ir.Var, tvm.ir.Expr], ...]
        Each axis of the block before the call, in rows, keys and ``axes``.
    init : tvm.ir.Expr
        The value of T.init before the call.
    term : tvm.ir.Expr
        The term that is combined before the call, with elementwise blocks inlined.
    value, previous : tvm.ir.Var
        This stage's result in the terms of later stages, and the result before a block of keys.
    accumulated, finished : tvm.ir.Var
        Its state before a block of keys, and after all keys.
    state : tvm.ir.Var
        The buffer of the state after the call; of parts, that in which their states are merged.
    part_state : tvm.ir.Var or None
        The buffer of the states of parts, the part first; None if there is one part.
    state_init : tvm.ir.Expr
        Start value of the state.
    step : tvm.ir.Expr
        The term combined in the loop, where results are what they are after the block of keys.
    correction : tvm.ir.Expr
        The accumulated state corrected, before the block's terms are combined with it.
    tail : tvm.ir.Expr or None
        The result as a function of ``finished`` and of final results; None: the state itself.
    rolled, deferred, quotient : tvm.ir.Expr or None
        Factors of the term that are corrected and deferred, and q(previous, value) of the former.
    carriers : tuple[int, ...]
        The stages whose results the corrected factors read.
    guards : tuple[str, ...]
        ``"same-carrier"``: nothing is corrected where the result has not changed;
        ``"first-block"``: nor where no key came before; ``"zero-carrier"``: a row's result of 0
        divides nothing in the loop; ``"finite-sum"``: assumes that the sum without its deferred
        factor does not overflow, nor its terms underflow; ``"finite-parts"``: that no part's sum
        overflows where the row's does not.
    """

    name: str
    monoid: str
    rule: str
    accumulator: Any
    indices: tuple[Any, ...]
    axes: tuple[Any, ...]
    axes_extents: tuple[Any, ...]
    bindings: tuple[tuple[Any, Any], ...]
    init: Any
    term: Any
    value: Any
    previous: Any
    accumulated: Any
    finished: Any
    state: Any
    part_state: Any
    state_init: Any
    step: Any
    correction: Any
    tail: Any
    rolled: Any
    deferred: Any
    quotient: Any
    carriers: tuple[int, ...]
    guards: tuple[str, ...]

    def __str__(self) -> str:
        """Return the reduction, its law, and what is done with its state, one line each."""
        result = element(self.accumulator, self.indices)
        lines = [f"'{self.name}': {self.monoid} into {result}, law {self.rule}"]
        if self.rule != "head":
            lines.append(f"    before each block: {as_line(self.correction)}")
        lines.append(f"    combined with each: {as_line(self.step)}")
        if self.tail is not None:
            lines.append(f"    at the end: {as_line(self.tail)}")
        if self.guards:
            lines.append(f"    guards: {', '.join(self.guards)}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class CascadeCertificate(Printed):
    """The claims of one call of ``fuse_cascaded_reductions``.

    Attributes
    ----------
    numerics : str
        ``"exact"`` or ``"reassociate"``, as the call asked for.
    block : str
        Name of the fused block after the call.
    rows, rows_extents : tuple
        Its spatial axes, as variables, and their extents; they start at 0.
    keys, keys_extents : tuple
        The reduction axes, and their extents; they start at 0.
    shared : int
        The key that is blocked.
    factor : int
        The number of its values in a block.
    parts : int
        The number of parts that the blocks are divided into, each with a state of its own.
    count, total : tvm.ir.Var
        The number of keys before a block of them, and with it, in its part.
    stages : tuple[CascadeStage, ...]
        The reductions, in program order.
    removed : tuple[str, ...]
        Names of the buffers that are gone.
    """

    numerics: Numerics
    block: str
    rows: tuple[Any, ...]
    rows_extents: tuple[Any, ...]
    keys: tuple[Any, ...]
    keys_extents: tuple[Any, ...]
    shared: int
    factor: int
    parts: int
    count: Any
    total: Any
    stages: tuple[CascadeStage, ...]
    removed: tuple[str, ...]

    def __str__(self) -> str:
        """Return the loop over blocks of keys, and the claims about each reduction."""
        keys = f"blocks of {self.factor} of {as_line(self.keys_extents[self.shared])} keys"
        if self.parts > 1:
            keys += f" in {self.parts} parts"
        names = quoted(stage.name for stage in self.stages)
        lines = [f"cascade of {names} in '{self.block}', {keys} (numerics: {self.numerics})"]
        for stage in self.stages:
            lines += [f"    {line}" for line in str(stage).splitlines()]
        if self.removed:
            lines.append(f"    gone: {quoted(self.removed)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the certificate as texts, numbers and lists of them.

        Returns
        -------
        dict[str, Any]
            Values of JSON's types, by the names of the attributes.

        Example
        -------
        >>> import tvm
        >>> from tvm import te, topi
        >>> x = te.placeholder((4, 128), name="x")
        >>> sch = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.softmax(x)]))
        >>> report = sch.fuse_cascaded_reductions("T_softmax_expsum")
        >>> report.certificate.as_json()["factor"]
        64
        """
        return cast(dict[str, Any], _as_text(self))


def certificate_from_core(raw: Any, removed: Any) -> CascadeCertificate:  # noqa: ANN401
    """Build the certificate from what the core returns.

    - `raw` (tvm_ffi.Map): an entry for every attribute of :class:`CascadeCertificate` but the last.
    - `removed` (tvm_ffi.Array): names of the buffers that are gone.
    """
    return CascadeCertificate(
        numerics=cast(Numerics, str(raw["numerics"])),
        block=str(raw["block"]),
        rows=tuple(raw["rows"]),
        rows_extents=tuple(raw["rows_extents"]),
        keys=tuple(raw["keys"]),
        keys_extents=tuple(raw["keys_extents"]),
        shared=int(raw["shared"]),
        factor=int(raw["factor"]),
        parts=int(raw["parts"]),
        count=raw["count"],
        total=raw["total"],
        stages=tuple(_stage(stage) for stage in raw["stages"]),
        removed=tuple(map(str, removed)),
    )


def _stage(raw: Any) -> CascadeStage:  # noqa: ANN401 - a map of the ffi
    expressions = (
        *("accumulator", "init", "term", "value", "previous", "accumulated", "finished", "state"),
        *("part_state", "state_init", "step", "correction", "tail", "rolled", "deferred"),
        "quotient",
    )
    return CascadeStage(
        name=str(raw["name"]),
        monoid=str(raw["monoid"]),
        rule=str(raw["rule"]),
        indices=tuple(raw["indices"]),
        axes=tuple(raw["axes"]),
        axes_extents=tuple(raw["axes_extents"]),
        bindings=tuple((axis, value) for axis, value in raw["bindings"]),
        carriers=tuple(map(int, raw["carriers"])),
        guards=tuple(map(str, raw["guards"])),
        **{name: raw[name] for name in expressions},
    )


def _as_text(value: Any) -> Any:  # noqa: ANN401 - anything in, JSON out
    if hasattr(value, "__dataclass_fields__"):
        return {name: _as_text(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple):
        return [_as_text(one) for one in value]
    if value is None or isinstance(value, str | int):
        return value
    return as_line(value)
