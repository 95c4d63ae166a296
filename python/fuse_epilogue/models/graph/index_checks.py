"""Checks that indices are inside of the arrays that they are for, before these are read or written.

TVM's operators read and write at any index. Before them, a check goes through the indices once:

    checked = check_indices(ids, 0, 9)      ids, as it is, or an IndexError
    rows = take(table, checked)

The check is of the value that the indices are made of by views and by counting from the end, so
that a message names an input of the model where it can. Indices that are inside for certain, as
the places of a sort, are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, relax, sym
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import handle, operator_name
from .index_check_function import NAME, check_function
from .index_ranges import Ranges, as_number, counted_from_end, known, proved
from .rewriting import graph_pass, known_shape, rewritten, with_arguments

_VIEWS = frozenset(
    f"relax.{name}"
    for name in ("reshape", "broadcast_to", "expand_dims", "squeeze", "permute_dims", "flatten")
)
#: Operators that count indices below zero from the end themselves.
_COUNT_FROM_END = frozenset({"scatter_elements", "index_put"})


@dataclass(frozen=True)
class Demand:
    """Indices that must be inside of an array.

    - `index`: tensor of integers.
    - `sizes`: of the axes that the elements of its last axis are for, or a single one.
    - `from_end`: whether those below zero count from the end.
    - `operator`: name of the operator that reads or writes there.
    """

    index: Any
    sizes: tuple[Any, ...]
    from_end: bool
    operator: str

    @property
    def ends(self) -> list[Any]:
        """The smallest and the largest index for each of the sizes, one after the other."""
        least = [0 - size if self.from_end else 0 for size in self.sizes]
        pairs = zip(least, self.sizes, strict=True)
        return [end for low, size in pairs for end in (low, size - 1)]

    def follows_from(self, other: Demand) -> bool:
        """Whether it holds where another demand on the same indices does."""
        return self.from_end >= other.from_end and _equal(self.sizes, other.sizes)


@graph_pass
def CheckIndices(mod: ir.IRModule) -> ir.IRModule:
    """Check indices that are not inside for certain."""
    return relax.transform.DeadCodeElimination()(rewritten(mod, _Checker))


@mutator
class _Checker(PyExprMutator):
    def __init__(self, mod: ir.IRModule) -> None:
        super().__init__(mod)
        self.ranges = Ranges()
        #: What constants of a block are replaced by where they are indices.
        self.constants: dict[int, Any] = {}
        self.inputs = {
            handle(param): str(param.name)
            for func in mod.functions.values()
            if isinstance(func, relax.Function)
            for param in func.params
        }

    def visit_dataflow_block_(self, block: Any) -> Any:
        """Return the block with checks."""
        self.builder_._begin_dataflow_block()
        return self._visited(block)

    def visit_binding_block_(self, block: Any) -> Any:
        """Return the block with checks."""
        self.builder_._begin_binding_block()
        return self._visited(block)

    def visit_call_(self, call: Any) -> Any:
        """Return a call with constants replaced that are checked."""
        call = super().visit_call_(call)
        if not self.constants or not _demands(call, self.ranges):
            return call
        return with_arguments(call, [self._checked(arg) for arg in call.args])

    def _checked(self, arg: Any) -> Any:
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([self._checked(each) for each in arg.fields])
        return self.constants.get(handle(arg), arg)

    def _visited(self, block: Any) -> Any:
        for binding in block.bindings:
            self.ranges.bind(binding.var, getattr(binding, "value", None))
        inside = {handle(binding.var): binding.var for binding in block.bindings}
        wanted = self._wanted(block, set(inside))
        outer = [demands[0].index for each, demands in wanted.items() if each not in inside]
        # What is bound here is not known after the block.
        before = [(each, self.visit_expr(each)) for each in outer if isinstance(each, relax.Var)]
        constants, self.constants = self.constants, {}
        for each in outer:
            self._check(each, wanted[handle(each)])
        is_dataflow = isinstance(block, relax.DataflowBlock)
        for binding in block.bindings:
            self.visit_binding(binding)
            var = binding.var
            if handle(var) in wanted:
                is_output = is_dataflow and not isinstance(var, relax.DataflowVar)
                self._check(var, wanted[handle(var)], is_output)
        for var, other in before:
            self.set_var_remap(var, other)
        self.constants = constants
        return self.builder_._end_block()

    def _wanted(self, block: Any, inside: set[int]) -> dict[int, list[Demand]]:
        """Return what must be checked in a block, by the variable of the indices."""
        wanted: dict[int, list[Demand]] = {}
        for binding in block.bindings:
            for demand in _demands(self.ranges.value(binding.var), self.ranges):
                for each in _origins(demand, self.ranges, inside):
                    if self._is_inside(each):
                        continue
                    others = wanted.setdefault(handle(each.index), [])
                    if not any(each.follows_from(other) for other in others):
                        others[:] = [o for o in others if not o.follows_from(each)] + [each]
        return wanted

    def _is_inside(self, demand: Demand) -> bool:
        """Whether indices are inside for certain."""
        if isinstance(demand.index, GenericConst) and len(demand.sizes) > 1:
            array = demand.index.value.numpy()
            parts = [array[..., at] for at in range(len(demand.sizes))]
            ends = [(int(part.min()), int(part.max())) if part.size else (0, -1) for part in parts]
        else:
            ends = [self.ranges.of(demand.index)] * len(demand.sizes)
        return all(
            known(low, high) and proved(low >= least) and proved(high <= most)
            for (low, high), least, most in zip(
                ends, demand.ends[::2], demand.ends[1::2], strict=True
            )
        )

    def _check(self, value: Any, demands: list[Demand], is_output: bool = False) -> None:
        """Emit checks of a variable or a constant, which is replaced by their result.

        - `is_output`: whether other blocks may read the variable.
        """
        checked = self.visit_expr(value)
        emit = self.builder_.emit_output if is_output else self.builder_.emit
        for demand in demands:
            ends = demand.ends
            func = check_function(checked, demand.operator, self._described(value), ends)
            name = self.builder_.add_func(func, NAME)
            numbers = [relax.prim_value(end) if isinstance(end, int) else end for end in ends]
            call = relax.op.call_tir_inplace(
                name, relax.Tuple([checked, *numbers]), [0], checked.ty
            )
            checked = emit(call)
        if isinstance(value, GenericConst):
            self.constants[handle(value)] = checked
        else:
            self.set_var_remap(value, checked)

    def _described(self, var: Any) -> str:
        """Return what a variable is: an input, or of which inputs it is computed."""
        if isinstance(var, GenericConst):
            return "a constant"
        names = [f"'{self.inputs[each]}'" for each in self.ranges.origins(var) & set(self.inputs)]
        own = f"input{'s' if len(names) > 1 else ''} {' and '.join(sorted(names))}" if names else ""
        if handle(var) in self.inputs:
            return own
        return f"a value computed from {own}" if own else "a value that the model computes"


def _demands(call: Any, ranges: Ranges) -> list[Demand]:
    """Return the indices that an operator reads or writes at."""
    name = operator_name(call).removeprefix("relax.")
    if name in ("take", "gather_elements", "scatter_elements"):
        sizes = known_shape(call.args[0])
        if sizes is None or str(getattr(call.attrs, "mode", "fast")) != "fast":
            return []
        axis = call.attrs.axis
        axes = [(call.args[1], [0 if axis is None else int(axis) % len(sizes)])]
    elif name in ("gather_nd", "scatter_nd"):
        sizes = known_shape(call.args[0])
        first = int(call.attrs.batch_dims) if name == "gather_nd" else 0
        count = (known_shape(call.args[1]) or [None])[-1]
        if sizes is None or count is None:
            return []
        axes = [(call.args[1], list(range(first, first + int(count))))]
    elif name in ("index_tensor", "index_put"):
        sizes = known_shape(call.args[0])
        parts = ranges.value(call.args[1])
        if sizes is None or not isinstance(parts, relax.Tuple):
            return []
        axes = [(each, [axis]) for axis, each in enumerate(parts.fields)]
    else:
        return []
    from_end = name in _COUNT_FROM_END
    return [
        Demand(index, tuple(as_number(sizes[axis]) for axis in each), from_end, name)
        for index, each in axes
        if known_shape(index) is not None
    ]


def _origins(demand: Demand, ranges: Ranges, inside: set[int]) -> Iterator[Demand]:
    """Yield what must hold of the values that indices are made of in a block."""
    if not isinstance(demand.index, relax.Var) or handle(demand.index) not in inside:
        yield demand
        return
    call = ranges.value(demand.index)
    name = operator_name(call)
    before: list[Demand] | None = None
    if len(demand.sizes) == 1 and (name in _VIEWS or _keeps_indices(call)):
        before = [replace(demand, index=call.args[0])]
    elif name == "relax.where":
        before = _from_end(demand, call, ranges)
    elif name == "relax.add" and len(demand.sizes) == 1:
        before = _of_two_axes(demand, call, ranges)
    if before is None:
        yield demand
    for each in before or []:
        yield from _origins(each, ranges, inside)


def _keeps_indices(call: Any) -> bool:
    """Whether a call converts integers, to a type that any index of an array fits in."""
    if operator_name(call) != "relax.astype":
        return False
    return str(call.attrs.dtype) in ("int32", "int64") and "int" in str(call.args[0].ty.dtype)


def _from_end(demand: Demand, call: Any, ranges: Ranges) -> list[Demand] | None:
    """Return the demand on `i` in ``where(i < 0, i + size, i)``, None in another call."""
    added = counted_from_end(ranges, call)
    if added is None:
        return None
    sizes = ranges.numbers(added)
    if sizes is None:
        return None
    each = sizes * len(demand.sizes) if len(sizes) == 1 else sizes
    if not _equal(each, demand.sizes):
        return None
    return [replace(demand, index=call.args[2], from_end=True)]


def _of_two_axes(demand: Demand, call: Any, ranges: Ranges) -> list[Demand] | None:
    """Return the demands on `i` and `j` in ``i * size + bounded(j)``, None in another call.

    ``bounded(j)``, which the importer of torch writes, is outside of the array where `j` is not
    from 0 to `size` - 1: ``where(j < 0 or j >= size, outside, j)``.
    """
    product, bounded = map(ranges.value, call.args)
    if operator_name(product) != "relax.multiply" or operator_name(bounded) != "relax.where":
        return None
    size, outside = ranges.number(product.args[1]), ranges.number(bounded.args[1])
    tests = ranges.value(bounded.args[0])
    if size is None or outside is None or operator_name(tests) != "relax.logical_or":
        return None
    below, above = map(ranges.value, tests.args)
    inner, (whole,) = bounded.args[2], demand.sizes
    first = sym.Analyzer().simplify(whole // size) if not isinstance(whole, int) else whole // size
    holds = (
        operator_name(below) == "relax.less"
        and operator_name(above) == "relax.greater_equal"
        and all(each.args[0].same_as(inner) for each in (below, above))
        and _equal([ranges.number(each.args[1]) for each in (below, above)], [0, size])
        and proved(first * size == whole)
        and proved(outside >= whole)
    )
    if not holds:
        return None
    return [
        replace(demand, index=product.args[0], sizes=(first,), from_end=False),
        replace(demand, index=inner, sizes=(size,), from_end=False),
    ]


def _equal(ones: Any, others: Any) -> bool:
    return len(ones) == len(others) and all(
        known(one, other) and proved(one == other) for one, other in zip(ones, others, strict=True)
    )
