"""Parameters of programs, their shapes for given sizes, and how much work a run is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Var, prim

from .scalar_ops import RUNTIME
from .scalars import ScalarType, scalar_type
from .statements import StatementWriter
from .values import Value


class Parameter:
    """A parameter of a program.

    - `name`: as in the function.
    - `type`: type of the number, or of the elements.
    - `shape` (tuple or None): extents, each a number, the name of a variable, or None where it is
      an expression; None for a number.
    - `codes`: the extents as source, in the argument names of sizes.
    - `strides`, `offset`: the declared ones as source; no strides where elements are one after the
      other.
    - `written` (bool): whether the program stores to it.
    """

    __slots__ = ("codes", "name", "offset", "shape", "strides", "type", "written")

    def __init__(
        self,
        name: str,
        type: ScalarType,
        shape: tuple[Any, ...] | None,
        codes: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.type = type
        self.shape = shape
        self.codes = codes
        self.strides: tuple[str, ...] = ()
        self.offset = "0"
        self.written = False


def unique_names(variables: Sequence[Any]) -> list[str]:
    """Return a name for each variable: its own, or another one where a variable before has that.

    Two parameters of one name are two arrays: TVM goes by their places.

    - `variables` (sequence of Var)
    """
    found: list[str] = []
    for variable in variables:
        name, number = str(variable.name), 2
        while name in found:
            name, number = f"{variable.name} ({number})", number + 1
        found.append(name)
    return found


def declare_parameters(
    func: tirx.PrimFunc, writer: StatementWriter
) -> tuple[list[Parameter], dict[str, str], list[str]]:
    """Bring the parameters of a function into scope.

    - Returns: the parameters, the symbolic dimensions and strides by name, each with its argument
      name, and the argument names of the generated function: sizes first, then parameters.
    """
    expressions = writer.expressions
    parameters: list[Parameter] = []
    sizes: dict[str, str] = {}
    names: list[str] = []
    types = [var.ty for var in func.params if isinstance(var.ty, tirx.BufferType)]
    extents = {var.__chandle__() for type in types for var in _variables_in(type.shape)}
    parts = [type.shape for type in types] + [_places(type) for type in types]
    dimensions = {var.__chandle__(): var for part in parts for var in _variables_in(part)}
    named = dict(zip(dimensions, unique_names(list(dimensions.values())), strict=True))
    for handle, extent in dimensions.items():
        type = scalar_type(extent.ty.dtype)
        sizes[named[handle]] = code = expressions.fresh("n")
        low = 0 if handle in extents else type.low
        expressions.variables[handle] = Value(code, type, True, low, type.high)
    for var, name in zip(func.params, unique_names(func.params), strict=True):
        code = expressions.fresh("p")
        names.append(code)
        if isinstance(var.ty, tirx.BufferType):
            shape = tuple(_extent(extent, named) for extent in var.ty.shape)
            buffer = writer.declare(var, code)
            codes = tuple(extent.code for extent in buffer.shape)
            param = Parameter(name, buffer.type, shape, codes)
            places = [expressions.static(part, "a stride").code for part in _places(var.ty)]
            param.strides, param.offset = tuple(places[:-1]), places[-1]
            parameters.append(param)
        else:
            type = scalar_type(var.ty.dtype)
            parameters.append(Parameter(name, type, None))
            expressions.variables.setdefault(var.__chandle__(), Value(code, type))
    return parameters, sizes, [*sizes.values(), *names]


def _places(type: Any) -> list[Any]:
    """Return the strides of a buffer, if it has any, and its offset."""
    offset = prim.IntImm("int64", 0) if type.elem_offset is None else type.elem_offset
    return [*(type.strides or ()), offset]


def _variables_in(shape: Any) -> list[Any]:
    """Return the variables that extents are made of."""
    found: list[Any] = []
    pending = list(shape)
    while pending:
        node = pending.pop(0)
        if isinstance(node, Var):
            found.append(node)
        elif hasattr(node, "a") and hasattr(node, "b"):
            pending += [node.a, node.b]
        elif isinstance(node, prim.Cast):
            pending.append(node.value)
    return found


def _extent(extent: Any, named: Mapping[int, str]) -> Any:
    """Return a number, the name of a variable, or None for an expression."""
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    return named[extent.__chandle__()] if isinstance(extent, Var) else None


def shape_of(program: Any, param: Parameter, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the extents of a parameter of a program for given sizes.

    - `program` (Program or AbstractProgram): the program.
    - `param`: one of its parameters, a buffer.
    - `sizes`: every symbolic dimension.
    """
    names = {code: sizes[name] for name, code in program.sizes.items()}
    return tuple(int(eval(code, dict(RUNTIME), names)) for code in param.codes)


def work_of(program: Any, sizes: Mapping[str, int]) -> int:
    """Return how many stores a run of a program executes, at most.

    - `program` (Program or AbstractProgram): the program.
    - `sizes`: every symbolic dimension.
    """
    names = {code: sizes[name] for name, code in program.sizes.items()}
    total = 0
    for extents in program.stores:
        count = 1
        for extent in extents:
            try:
                count *= int(eval(extent.code, dict(RUNTIME), names))
            except NameError:
                # The extent of an inner loop changes with an outer one.
                count *= extent.high
        total += count
    return total


def check_names(argument: str, given: Collection[str], known: Collection[str]) -> None:
    """Return if an argument names only what is in the functions.

    - Raises ValueError
    """
    wrong = [name for name in given if name not in known]
    if wrong:
        have = ", ".join(map(repr, known)) or "none"
        raise ValueError(
            f"{argument} names {', '.join(map(repr, wrong))}, which is not in the functions: they "
            f"have {have}"
        )
