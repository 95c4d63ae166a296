"""The signature of a compiled model: names, shapes and types, checked at every call."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax, tirx

from .derived_sizes import arrays_of, linear

#: A size that is computed from one with a name, as in ``32*d+1``.
_DERIVED = re.compile(r"(?:(\d+)\*)?([^\s*+-]+)([+-]\d+)?")


@dataclass(frozen=True)
class ArrayType:
    """An argument or a result.

    Attributes
    ----------
    name : str
    shape : tuple[int or str, ...]
        A name stands for a size that may differ from call to call, as does what is computed from
        one: ``"32*d"``.
    dtype : str
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        """Return it as in ``x: float32[1, n]``."""
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """The inputs and results of a model.

    Attributes
    ----------
    inputs, outputs : tuple[ArrayType, ...]
    is_tuple : bool
        Whether a call returns a tuple, if only of one array.
    """

    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    is_tuple: bool = False

    def __str__(self) -> str:
        """Return it as in ``(x: float32[4]) -> float32[4]``."""
        outputs = ", ".join(str(each).partition(": ")[2] for each in self.outputs)
        result = f"({outputs})" if self.is_tuple else outputs
        return f"({', '.join(map(str, self.inputs))}) -> {result}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sizes of the inputs that may differ from call to call."""
        sizes = [size for each in self.inputs for size in each.shape]
        return tuple(dict.fromkeys(_parts(size)[1] for size in sizes if isinstance(size, str)))

    def check(self, shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> dict[str, int]:
        """Return the sizes by name, if arguments fit.

        Parameters
        ----------
        shapes : Sequence[Sequence[int]]
            Shape of each argument.
        dtypes : Sequence[str]
            Type of each argument, such as "float32".

        Returns
        -------
        dict[str, int]
            Values of :attr:`names`.

        Raises
        ------
        TypeError
            There are more or fewer than the model takes, or one is of another type.
        ValueError
            One has another shape, or two sizes of one name differ.

        Example
        -------
        >>> from fuse_epilogue.models import ArrayType, Signature
        >>> signature = Signature((ArrayType("x", (2, "n"), "float32"),), ())
        >>> signature.check([(3, 4)], ["float32"])
        Traceback (most recent call last):
        ValueError: argument 0 of (x: float32[2, n]) has shape (3, 4), not (2, n)
        """
        if len(shapes) != len(self.inputs):
            names = ", ".join(each.name for each in self.inputs)
            raise TypeError(
                f"the model takes {len(self.inputs)} arrays ({names}), not {len(shapes)}"
            )
        sizes: dict[str, int] = {}
        for place, (expected, shape, dtype) in enumerate(
            zip(self.inputs, shapes, dtypes, strict=True)
        ):
            if dtype != expected.dtype:
                raise TypeError(
                    f"argument {place} of ({expected}) is {dtype}, not {expected.dtype}: cast it"
                )
            if not _fits(expected.shape, shape, sizes):
                given = f"({', '.join(map(str, shape))})"
                wanted = f"({', '.join(map(str, expected.shape))})"
                own = Signature((expected,), ()).names
                fixed = {name: size for name, size in sizes.items() if name in own}
                where = f" with {fixed}" if fixed else ""
                raise ValueError(
                    f"argument {place} of ({expected}) has shape {given}, not {wanted}{where}"
                )
        return sizes


@functools.lru_cache
def _parts(size: str) -> tuple[int, str, int]:
    """Return a size as a factor, a name, and what is added.

    >>> _parts("32*d-1")
    (32, 'd', -1)
    """
    found = _DERIVED.fullmatch(size)
    if found is None:
        return 1, size, 0
    factor, name, rest = found.groups()
    return int(factor or 1), name, int(rest or 0)


def _fits(expected: tuple[int | str, ...], shape: Sequence[int], sizes: dict[str, int]) -> bool:
    """Return whether a shape fits; sizes that it gives names to are kept."""
    if len(expected) != len(shape):
        return False
    for want, size in zip(expected, shape, strict=True):
        factor, name, rest = _parts(want) if isinstance(want, str) else (1, "", 0)
        value, missing = divmod(size - rest, factor)
        if missing or value < 0 or (sizes.setdefault(name, value) if name else want) != value:
            return False
    return True


def with_sizes(signature: Signature, sizes: Mapping[str, int]) -> list[tuple[Any, str]]:
    """Return the shapes and types of the inputs for some sizes."""

    def known(size: int | str) -> int | str:
        factor, name, rest = _parts(size) if isinstance(size, str) else (1, "", 0)
        return factor * sizes[name] + rest if name in sizes else size

    return [(tuple(map(known, each.shape)), each.dtype) for each in signature.inputs]


def signature_of(mod: ir.IRModule) -> Signature:
    """Return the signature of a module's Relax function "main".

    - Raises ValueError: an argument or a result is not an array of known rank and type.
    """
    main = mod["main"]
    inputs = tuple(_array(param.name, param.ty) for param in arrays_of(main))
    result = main.ret_ty
    is_tuple = isinstance(result, relax.TupleType)
    fields = list(result.fields) if is_tuple else [result]
    outputs = tuple(_array(f"result{place}", each) for place, each in enumerate(fields))
    return Signature(inputs, outputs, is_tuple)


def _array(name: Any, type_: Any) -> ArrayType:
    if isinstance(type_, relax.TensorType) and type_.shape is None and type_.ndim >= 0:
        raise ValueError(
            f"the size of '{name}' of the model depends on data, or is not known from the sizes of "
            "the inputs: return an array of a size that is, such as a mask instead of what it "
            "selects"
        )
    if not isinstance(type_, relax.TensorType) or type_.shape is None or not type_.dtype:
        raise ValueError(
            f"'{name}' of the model is {type_}: only arrays of known rank and type are supported"
        )
    return ArrayType(str(name), tuple(map(_size, type_.shape)), str(type_.dtype))


def _size(size: Any) -> int | str:
    """Return a size as a number, or as a text: what :func:`_parts` reads, if it is linear."""
    if isinstance(size, tirx.IntImm):
        return int(size)
    found = None if isinstance(size, tirx.Var) else linear(size)
    if found is None:
        return str(size)
    factor, name, rest = found
    return f"{factor}*" * (factor != 1) + str(name) + f"{rest:+d}" * (rest != 0)
