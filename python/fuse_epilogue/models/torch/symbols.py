"""Sizes of torch in Relax: expressions of the sizes that have names."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tvm import tirx
from tvm.ir import prim
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter
from tvm.sym import Analyzer

from ...tir.walk import handle, variables
from ..derived_sizes import parameter_for

#: Denominators of floats whose product with a size has all its digits.
_EXACT = 64
#: Functions of torch's expressions, by name; of sizes, no quotient is rounded towards zero.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *terms: functools.reduce(operator.add, terms),
    "Mul": lambda *factors: functools.reduce(operator.mul, factors),
    "FloorDiv": prim.FloorDiv,
    "CleanDiv": prim.FloorDiv,
    "Mod": prim.FloorMod,
    "PythonMod": prim.FloorMod,
    "Max": lambda *values: functools.reduce(prim.Max, values),
    "Min": lambda *values: functools.reduce(prim.Min, values),
}


class Sizes:
    """Sizes as Relax has them.

    - `names`: by torch's symbols, variables of Relax.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._analyzer = Analyzer()

    def of(self, size: Any) -> Any:
        """Return a size, an int or a SymInt, as an int or an expression; None if it has none."""
        if isinstance(size, int):
            return size
        found = self._converted(size.node.expr)
        if found is None:
            return None
        found = self._analyzer.simplify(found)
        return int(found) if isinstance(found, prim.IntImm) else found

    def shape(self, sizes: Sequence[Any]) -> list[Any] | None:
        """Return all sizes of a shape, None if one has no expression."""
        found = [self.of(size) for size in sizes]
        return None if any(each is None for each in found) else found

    def are_equal(self, size: Any, other: Any) -> bool:
        """Return whether Relax also finds two sizes to be the same."""
        return bool(self._analyzer.can_prove_equal(_expression(size), _expression(other)))

    def _converted(self, expr: Any) -> Any:
        if expr.is_Integer:
            return prim.IntImm("int64", int(expr))
        if expr.is_Symbol:
            return self._names.get(str(expr))
        name = type(expr).__name__
        if name == "TruncToInt":
            return self._whole_part(expr.args[0])
        arguments = [self._converted(each) for each in expr.args]
        if any(each is None for each in arguments):
            return None
        if name == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            return _FUNCTIONS["Mul"](*arguments[:1] * int(expr.args[1]))
        return _FUNCTIONS[name](*arguments) if name in _FUNCTIONS else None

    def _whole_part(self, expr: Any) -> Any:
        """Return the whole part of a size times a float, where torch does not round the product."""
        sizes = [each.args[0] for each in expr.args if type(each).__name__ == "ToFloat"]
        floats = [Fraction(float(each)) for each in expr.args if each.is_Float]
        size = self._converted(sizes[0]) if sizes else None
        if size is None or len(floats) != 1 or len(expr.args) != 2:
            return None
        above, below = floats[0].as_integer_ratio()
        if below > _EXACT:
            return None
        return prim.FloorDiv(size * above, prim.IntImm("int64", below))


def _expression(size: Any) -> Any:
    return prim.IntImm("int64", size) if isinstance(size, int) else size


class ImporterWithSizes(ExportedProgramImporter):
    """TVM's importer, which knows how to say a size of torch in Relax.

    - `sizes`: the sizes of the program that is imported.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes = Sizes({})

    def create_input_vars(self, exported_program: Any) -> Any:
        """Return the parameters; sizes that none of them defines have a parameter of their own."""
        weights, inputs, ranges = super().create_input_vars(exported_program)
        sizes = [size for each in inputs.values() for size in each.ty.shape]
        names = {str(var.name): var for size in sizes for var in variables(size)}
        self.sizes = Sizes(names)
        alone = {handle(size) for size in sizes if isinstance(size, tirx.Var)}
        missing = [var for var in names.values() if handle(var) not in alone]
        if missing:
            weights["sizes of the inputs"] = parameter_for(missing)
        return weights, inputs, ranges
