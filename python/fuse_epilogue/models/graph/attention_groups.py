"""Makes one function of the operators of an attention.

Frontends write attention as two products with a scale, a mask and a softmax between them, and views
around them: groups of heads are broadcast, heads and rows are exchanged. FuseOps joins neither
product to the softmax:

    s = matmul(q, transpose(k));  p = softmax(s * scale + mask);  o = transpose(matmul(p, v))

After this pass they are one PrimFunc, which a kernel of its own computes. Operators that no such
kernel would compute stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.ir import GenericConst

from ...recognize.attention import attention_of
from ...recognize.stages import read_program
from ...rewrites.branches import with_branches
from .one_function import one_function, operands
from .rewriting import BINARY, OPAQUE, UNARY, graph_pass, operator_name, tensors_of, with_functions

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
#: Operators after the second product: what else is computed of each element, and views alone.
_VIEWED = _MOVEMENTS | {"relax.astype", "relax.where"}
_AFTER = _VIEWED | UNARY | BINARY
#: Operators by which masks are computed from places alone, where the number of places is not known.
_OF_PLACES = _MOVEMENTS | frozenset(
    f"relax.{name}"
    for name in (
        *("arange", "add", "astype", "equal", "full", "greater", "greater_equal", "less"),
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
    graph = _Graph(block.bindings)
    calls: dict[Any, Any] = {}
    for binding in block.bindings:
        found = next(filter(None, map(graph.function_of, graph.groups(binding))), None)
        if found is not None:
            group, func = found
            # It is as it is wanted: FuseOps would join elementwise operators that the kernel lacks.
            place = builder.add_func(func.with_attr("op_pattern", OPAQUE), "attention")
            last = group[-1].var
            calls[last] = relax.call_tir(place, operands(group), last.ty)
    if not calls:
        return block
    # What nothing reads any more goes when dead code does.
    bindings = [
        relax.VarBinding(each.var, calls[each.var]) if each.var in calls else each
        for each in block.bindings
    ]
    return relax.DataflowBlock(bindings)


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

    def groups(self, binding: Any) -> list[list[Any]]:
        """Return the groups of bindings that may be attention with `binding` as its last sum.

        The largest one comes first: views, scales and elementwise operators are part of it.
        """
        name = operator_name(binding.value)
        core: list[Any] | None = None
        if name in _WHOLE:
            core = [binding]
        elif name == _PRODUCT:
            core = self.between(binding)
        if core is None:
            return []
        before = self.with_operands(core)
        return [*(self.with_results(before, binding, each) for each in (_AFTER, _VIEWED)), before]

    def function_of(self, group: list[Any]) -> tuple[list[Any], Any] | None:
        """Return a group and its function, None if that is not computed by one kernel."""
        func = one_function(group)
        program = None if func is None else read_program(with_branches(func), symbolic=True)
        found = None if program is None else attention_of(program, narrow_result=True)
        return None if found is None or found.column.extent < 4 else (group, func)

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
        if any(self.is_read_elsewhere(each, group) for each in group[:-1]):
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

    def with_results(self, group: list[Any], last: Any, after: frozenset[str]) -> list[Any]:
        """Return a group with the operators on its result, as long as nothing else reads them."""
        group = list(group)
        while isinstance(last.var, relax.DataflowVar):
            readers = self.readers.get(last.var, [])
            if len(readers) != 1 or operator_name(readers[0].value) not in after:
                break
            last = readers[0]
            group.append(last)
        return self.ordered(group)

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
