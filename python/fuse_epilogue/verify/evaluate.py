"""Execute a PrimFunc in Python, statement by statement, without compiling it.

The program is generated once, as Python source; running it on small arrays then takes about a
millisecond. It does what TVM's LLVM code does (integers wrap around, floats round to their own
type, ``max(a, b)`` is ``a > b ? a : b``), and it watches what the machine does not: reading memory
that was never written, indices out of bounds, block variables outside of their domains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import ml_dtypes
import numpy as np
from tvm import s_tir, tirx

from .._arguments import prim_func, word
from .evaluation.expressions import ExpressionWriter
from .evaluation.parameters import Parameter, declare_parameters
from .evaluation.scalar_ops import RUNTIME, MachineDialect
from .evaluation.scalars import EvaluationError, ScalarType, UnsupportedError, round_bfloat16
from .evaluation.statements import StatementWriter, compile_source, unwritten
from .evaluation.values import Value

__all__ = ["EvaluationError", "Parameter", "Program", "UnsupportedError", "compile_function"]


# Calls and operators of the source that fail for some operands; a literal divides without fault.
_PARTIAL = re.compile(
    r"T\.assume|index\(|shift_amount\(|truncdiv\(|truncmod\(|checked_|(//|%) [^1-9]"
)


class Program:
    """A function translated to Python source.

    Attributes
    ----------
    parameters : list[Parameter]
        Parameters of the function, in order.
    sizes : dict[str, str]
        The symbolic dimensions and strides by name, each with its argument name in the source.
    source : str
        The generated source.
    stores : list[tuple[Value, ...]]
        For each store the extents of the loops around it.

    Example
    -------
    >>> from fuse_epilogue import verify, workloads
    >>> program = verify.compile_function(workloads.row_reduce(4, 8))
    >>> [parameter.name for parameter in program.parameters]
    ['x', 'y']
    """

    def __init__(
        self,
        parameters: list[Parameter],
        sizes: dict[str, str],
        source: str,
        namespace: dict[str, Any],
        reference: bool,
        stores: list[tuple[Value, ...]],
    ) -> None:
        self.parameters = parameters
        self.stores = stores
        self.source = source
        self.sizes = sizes
        self._reference = reference
        exec(compile_source(source), namespace)
        self._main = namespace["main"]

    @property
    def partial(self) -> bool:
        """Whether something in it may not be defined for some data: the source checks it."""
        return _PARTIAL.search(self.source) is not None

    def run(
        self, arrays: Mapping[str, Any], sizes: Mapping[str, int] | None = None
    ) -> dict[str, np.ndarray]:
        """Execute the program.

        Parameters
        ----------
        arrays : mapping of str to numpy.ndarray or number
            A value for each parameter, by name: an array of its shape and type, or a number.
            Arrays that the function stores to are changed in place, except by a float64
            reference, which leaves them alone.
        sizes : mapping of str to int, optional
            Symbolic dimensions by name; those that are the extent of some array may be left out.

        Returns
        -------
        dict[str, numpy.ndarray]
            The arrays stored to, by parameter; new float64 ones where this is a reference and the
            type is floating.

        Raises
        ------
        EvaluationError
            If the function reads what it never wrote, accesses memory out of bounds, divides by
            zero, or violates the domain of a block variable.
        ValueError
            If a shape, a type or a size does not fit.

        Example
        -------
        >>> import numpy as np
        >>> from fuse_epilogue import verify, workloads
        >>> program = verify.compile_function(workloads.row_reduce(2, 8))
        >>> program.run({"x": np.ones((2, 8), "float32"), "y": np.zeros(2, "float32")})
        {'y': array([8., 8.], dtype=float32)}
        """
        values = self._bind_sizes(arrays, sizes or {})
        lists = [self._load(param, arrays[param.name]) for param in self.parameters]
        try:
            with np.errstate(all="ignore"):
                self._main(*values, *lists)
        except ZeroDivisionError:
            raise EvaluationError("an integer is divided by zero") from None
        results = {}
        for param, content in zip(self.parameters, lists, strict=True):
            if param.written:
                results[param.name] = self._store(param, arrays[param.name], content)
        return results

    def _bind_sizes(self, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> list[int]:
        known = {name: int(value) for name, value in sizes.items()}
        for param in self.parameters:
            if param.shape is None:
                if param.name in self.sizes:
                    known[param.name] = int(arrays.get(param.name, known.get(param.name)))
                continue
            array = arrays[param.name]
            if array.dtype.name != param.type.name:
                raise ValueError(f"'{param.name}' is {array.dtype}, not {param.type.name}")
            if array.ndim != len(param.shape):
                raise ValueError(f"'{param.name}' has {array.ndim} axes, not {len(param.shape)}")
            for given, extent in zip(array.shape, param.shape, strict=True):
                if isinstance(extent, str):
                    extent = known.setdefault(extent, given)
                if isinstance(extent, int) and given != extent:
                    raise ValueError(f"'{param.name}' has shape {array.shape}: {given}!={extent}")
        missing = [name for name in self.sizes if name not in known and self._uses(name)]
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}")
        return [known.get(name, 0) for name in self.sizes]

    def _uses(self, name: str) -> bool:
        """Whether more depends on a size than the places of elements."""
        body = self.source.partition("\n")[2]
        return re.search(rf"\b{self.sizes[name]}\b", body) is not None

    def _load(self, param: Parameter, given: Any) -> Any:
        kind = param.type.kind
        if param.shape is None:
            value = np.asarray(given).astype(_numpy_type(param.type)).reshape(1)
            return self._elements(value, param.type)[0]
        if kind != "f":
            return given.ravel().tolist()
        return self._elements(given, param.type)

    def _elements(self, array: np.ndarray, type: ScalarType) -> list[Any]:
        if type.kind == "f" and (self._reference or type.bits == 64):
            return array.astype(np.float64).ravel().tolist()
        if type.name == "bfloat16":
            return list(array.astype(np.float32).ravel())
        return list(array.ravel()) if type.kind == "f" else array.ravel().tolist()

    def _store(self, param: Parameter, array: np.ndarray, content: list[Any]) -> np.ndarray:
        if self._reference and param.type.kind == "f":
            return np.array(content, np.float64).reshape(array.shape)
        through = np.float32 if param.type.name == "bfloat16" else array.dtype
        array[...] = np.array(content, through).reshape(array.shape).astype(array.dtype)
        return array


def _numpy_type(type: ScalarType) -> Any:
    return ml_dtypes.bfloat16 if type.name == "bfloat16" else np.dtype(type.name)


def compile_function(
    func: tirx.PrimFunc | s_tir.Schedule,
    arithmetic: Literal["machine", "float64", "checked"] = "machine",
) -> Program:
    """Turn a function into a program.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
        Function of the stage in which there are blocks. Loops of all kinds run serially.
    arithmetic : {"machine", "float64", "checked"}
        ``"machine"``: as compiled code computes. ``"float64"``: floats of all widths are computed
        in float64, casts between them round nothing; integers as the machine has them.
        ``"checked"``: as ``"machine"``, but a sum, difference or product of 32 or 64 bits that its
        type does not hold is an error, signed or not: TVM tells LLVM that there are none.

    Returns
    -------
    Program

    Raises
    ------
    UnsupportedError
        If the function has something in it that cannot be evaluated; the message names it.
    TypeError
        `func` is neither a PrimFunc nor a Schedule, or `arithmetic` is not a str.
    ValueError
        `arithmetic` is not one of its values.

    Example
    -------
    >>> from fuse_epilogue import verify, workloads
    >>> program = verify.compile_function(workloads.matmul("m", 4, 4))
    >>> list(program.sizes)
    ['m']
    """
    func = prim_func("func", func)
    word("arithmetic", arithmetic, ("machine", "float64", "checked"))
    reference = arithmetic == "float64"
    namespace = dict(RUNTIME)
    namespace["EvaluationError"] = EvaluationError
    namespace["unwritten"] = unwritten
    namespace["stored"] = (lambda x: x) if reference else round_bfloat16
    dialect = MachineDialect(namespace, reference, arithmetic == "checked")
    writer = StatementWriter(ExpressionWriter(dialect))
    parameters, sizes, names = declare_parameters(func, writer)
    writer.write(func.body)
    header = f"def main({', '.join(names)}):"
    source = "\n".join([header, *writer.lines, " return"])
    written = set(writer.written)
    for param, var in zip(parameters, func.params, strict=True):
        param.written = var.__chandle__() in written
    return Program(parameters, sizes, source, namespace, reference, writer.stores)
