"""Makes one function of the operators of an attention.

Frontends write attention as two products with a scale, a mask and a softmax between them, and views
around them: groups of heads are broadcast, heads and rows are exchanged. FuseOps joins neither
product to the softmax:

    s = matmul(q, transpose(k));  p = softmax(s * scale + mask);  o = transpose(matmul(p, v))

After this pass they are one PrimFunc, which a kernel of its own computes. Values of rows, such as a
log-sum-exp, are further results of it where others read them. Operators that no such kernel would
compute stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.ir import GenericConst

from ...recognize.attention import attention_of
from ...recognize.stages import read_program
from ...rewrites.branches import with_branches
from ...tir.shapes import is_same_count
from ...tir.walk import operator_name
from .one_function import call_of, in_place_of, one_function, operands
from .rewriting import (
    BINARY,
    UNARY,
    graph_pass,
    known_shape,
    tensors_of,
    with_functions,
)

_PRODUCT = "relax.matmul"
#: Operators that compute attention alone.
_WHOLE = frozenset({"relax.nn.attention", "relax.nn.attention_bias"})
#: Operators that only move elements.
_MOVEMENTS = frozenset(
    f"relax.{name}" for name in ("broadcast_to", "expand_dims", "permute_dims", "reshape")
)
#: Operators between the two products.
_BETWEEN = frozenset(
    {*UNARY, *BINARY, *_MOVEMENTS, "relax.max", "relax.nn.softmax", "relax.sum", "relax.where"}
)
#: Operators that compute values of rows of others, or of the scores.
_OF_ROWS = _BETWEEN | {"relax.squeeze"}
#: Operators after the second product: what else is computed of each element, and views alone.
_VIEWED = _MOVEMENTS | {"relax.astype", "relax.where"}
_AFTER = _VIEWED | UNARY | BINARY
#: Operators by which masks are computed from places alone, where the number of places is not known.
_OF_PLACES = _MOVEMENTS | frozenset(
    f"relax.{name}"
    for name in (
        *("abs", "arange", "add", "astype", "bitwise_and", "bitwise_not", "bitwise_or"),
        *("equal", "full", "greater", "greater_equal", "less"),
        *("less_equal", "logical_and", "logical_not", "logical_or", "multiply", "not_equal"),
        *("subtract", "where"),
    )
)
#: Operators that scale an operand of a product.
_SCALES = frozenset({"relax.multiply", "relax.divide"})


@graph_pass
def GroupAttention(mod: ir.IRModule) -> ir.IRModule:
    """Make a PrimFunc of each attention in a module's Relax functions.

    Only attention that :func:`fuse_epilogue.recognize.attention.attention_of` knows is grouped.
    """
    return with_functions(mod, _grouped)


def _grouped(block: Any, builder: Any) -> Any:
    """Return a block of bindings with each attention as a call of a function of its own."""
    if not isinstance(block, relax.DataflowBlock):
        return block
    bindings = list(block.bindings)
    graph = _Graph(bindings)
    for binding in block.bindings:
        found = next(filter(None, map(function_of, graph.groups(binding))), None)
        if found is None:
            continue
        group, func = found
        made = call_of(group.members, group.results, func, builder, "attention")
        # What nothing reads any more goes when dead code does.
        if len(group.results) == 1:
            (last,) = group.results
            bindings = [made[0] if each.var.same_as(last.var) else each for each in bindings]
        else:
            bindings = in_place_of(bindings, group.results, made)
            graph = _Graph(bindings)
    same = len(bindings) == len(block.bindings) and all(
        new is old for new, old in zip(bindings, block.bindings, strict=True)
    )
    return block if same else relax.DataflowBlock(bindings)


@dataclass(frozen=True)
class _Group:
    """Bindings that may be attention, in order.

    - `results`: those that others read: the last one that is computed of the second product, and
      values of rows.
    """

    members: list[Any]
    results: list[Any]


def function_of(group: _Group) -> tuple[_Group, Any] | None:
    """Return a group and its function, None if that is not computed by one kernel."""
    func = one_function(group.members, group.results)
    program = None if func is None else read_program(with_branches(func), symbolic=True)
    found = None if program is None else attention_of(program, narrow_result=True)
    return None if found is None or found.column.extent < 4 else (group, func)


class _Graph:
    """The bindings of a block, with who reads them."""

    def __init__(self, bindings: Sequence[Any]) -> None:
        self.place = {each.var: number for number, each in enumerate(bindings)}
        self.bindings = list(bindings)
        self.readers: dict[Any, list[Any]] = {}
        self.of_places: dict[Any, bool] = {}
        for each in bindings:
            for var in relax.analysis.free_vars(each.value):
                self.readers.setdefault(var, []).append(each)

    def groups(self, binding: Any) -> Iterator[_Group]:
        """Yield the groups of bindings that may be attention with `binding` as its last sum.

        The largest one comes first: views, scales and elementwise operators are part of it.
        """
        name = operator_name(binding.value)
        core: list[Any] | None = None
        if name in _WHOLE:
            core = [binding]
        elif name == _PRODUCT:
            core = self.between(binding)
        if core is None:
            return
        rows = self.of_rows(core, binding)
        before = self.with_operands([*core, *rows])
        tried: list[Any] = []
        for after in (_AFTER, _VIEWED, frozenset[str]()):
            members, last = self.with_results(before, binding, after)
            if last in tried:
                continue
            tried.append(last)
            read = [each for each in core if self.is_read_elsewhere(each, members)]
            if any(each is not last for each in read) or self.is_in_a_circle(members):
                continue
            results = [each for each in rows if self.is_read_elsewhere(each, members)]
            yield _Group(members, self.ordered([*results, last]))

    def of_rows(self, core: Sequence[Any], last: Any) -> list[Any]:
        """Return bindings of values of rows that are computed from those of a group."""
        products = [each for each in core[:-1] if operator_name(each.value) == _PRODUCT]
        shape = known_shape(products[0].var) if products else None
        own = {each.var for each in core}
        found: list[Any] = []
        todo = [each for each in core if each is not last]
        while todo and shape is not None:
            for reader in self.readers.get(todo.pop().var, []):
                if reader.var in own or operator_name(reader.value) not in _OF_ROWS:
                    continue
                size = known_shape(reader.var)
                if size is None or not is_same_count(size, shape[:-1]):
                    continue
                own.add(reader.var)
                found.append(reader)
                todo.append(reader)
        return found

    def is_in_a_circle(self, members: Sequence[Any]) -> bool:
        """Whether anything that a group reads waits for the group."""
        own = {each.var for each in members}
        first = min(self.place[each.var] for each in members)
        known: dict[Any, bool] = {}

        def waits(var: Any) -> bool:
            if var not in known:
                known[var] = var in own or (
                    self.place.get(var, -1) > first
                    and any(map(waits, relax.analysis.free_vars(self.bound(var).value)))
                )
            return known[var]

        return any(waits(var) for var in operands(members) if isinstance(var, relax.Var))

    def is_read_elsewhere(self, binding: Any, group: list[Any]) -> bool:
        """Whether a value of a group is needed by anything else."""
        own = {each.var for each in group}
        others = [each for each in self.readers.get(binding.var, []) if each.var not in own]
        return bool(others) or not isinstance(binding.var, relax.DataflowVar)

    def between(self, last: Any) -> list[Any] | None:
        """Return two products and what is between them, in order; None if there is none."""
        products: dict[Any, Any] = {}
        onto: dict[Any, bool] = {}

        def depends(var: Any) -> bool:
            """Whether a value is computed from another product; any answer after two of them."""
            if len(products) > 1:
                return False
            if var not in onto:
                binding = self.bound(var)
                name = operator_name(None if binding is None else binding.value)
                onto[var] = False
                if name == _PRODUCT:
                    products[var] = binding
                    onto[var] = True
                elif name in _BETWEEN:
                    onto[var] = any([depends(each) for each in tensors_of(binding.value)])
            return onto[var]

        left = last.value.args[0]
        if not isinstance(left, relax.Var) or not depends(left):
            return None
        group = [*(self.bound(var) for var, found in onto.items() if found), last]
        names = {operator_name(each.value) for each in group}
        if len(products) != 1 or not ({"relax.nn.softmax", "relax.max"} & names):
            return None
        return self.ordered(group)

    def with_operands(self, group: list[Any]) -> list[Any]:
        """Return a group with what is as well computed where it reads its operands.

        These are views, floats of 16 bits that become 32, masks of places, and scales that only the
        group reads.
        """
        own = {each.var: each for each in group}
        todo = list(group)
        while todo:
            for var in tensors_of(todo.pop().value):
                binding = self.bound(var)
                if binding is None or var in own:
                    continue
                name = operator_name(binding.value)
                scales = name in _SCALES and _is_scaled(binding.value)
                alone = all(each.var in own for each in self.readers.get(var, []))
                wanted = name in _MOVEMENTS or _widens(binding.value) or self.is_of_places(var)
                if wanted or (scales and alone):
                    own[var] = binding
                    todo.append(binding)
        return self.ordered(own.values())

    def with_results(
        self, group: list[Any], last: Any, after: frozenset[str]
    ) -> tuple[list[Any], Any]:
        """Return a group with the operators on its result, and the last one of these.

        An operator is taken if nothing else reads its operand.
        """
        group = list(group)
        while isinstance(last.var, relax.DataflowVar):
            readers = self.readers.get(last.var, [])
            if len(readers) != 1 or operator_name(readers[0].value) not in after:
                break
            last = readers[0]
            group.append(last)
        return self.ordered(group), last

    def is_of_places(self, var: Any) -> bool:
        """Whether a value is computed from places alone."""
        if var not in self.of_places:
            binding = self.bound(var)
            known = binding is not None and operator_name(binding.value) in _OF_PLACES
            self.of_places[var] = known and all(map(self.is_of_places, tensors_of(binding.value)))
        return self.of_places[var]

    def bound(self, var: Any) -> Any:
        """Return the binding of a variable, None for a parameter."""
        number = self.place.get(var)
        return None if number is None else self.bindings[number]

    def ordered(self, group: Any) -> list[Any]:
        """Return bindings in the order of the block."""
        return sorted(group, key=lambda each: self.place[each.var])


def _widens(value: Any) -> bool:
    """Whether floats of 16 bits become floats of 32, which is as well done where they are read."""
    is_cast = operator_name(value) == "relax.astype" and str(value.ty.dtype) == "float32"
    return is_cast and str(value.args[0].ty.dtype) in ("float16", "bfloat16")


def _is_scaled(value: Any) -> bool:
    """Whether a product or a quotient is of a tensor and a number."""
    numbers = [isinstance(each, GenericConst) and each.ty.ndim == 0 for each in value.args]
    return any(numbers)
