"""Values that a kernel computes with besides numbers, texts, tuples, lists and tiles."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import Refused

if TYPE_CHECKING:
    from ..walk import Walk
    from .modules import Module


@dataclass(frozen=True, slots=True)
class Symbol:
    """An operation, a memory or an engine, by its name in ``nl`` or ``nisa``.

    - `kind`: ``"op"``, ``"memory"``, ``"engine"`` or the name of an enumeration such as
      ``"reduce_cmd"``.
    - `name`: its name, as ``"add"``.
    - `value`: its place in an enumeration whose members are ordered, such as ``nisa.nc_version``.
    """

    kind: str
    name: str
    value: int = 0

    def __str__(self) -> str:
        """Return its name with the module's."""
        module = {"op": "nl", "memory": "nl", "engine": "nisa"}.get(self.kind)
        return f"{module or 'nisa.' + self.kind}.{self.name}"


@dataclass(eq=False, slots=True)
class Namespace:
    """A module that the package provides, such as ``nl``.

    - `name`: how messages call it.
    - `members`: values by name.
    - `missing`: message for a name that it does not have.
    """

    name: str
    members: Mapping[str, Any]
    missing: Callable[[str], str]


@dataclass(eq=False, slots=True)
class Builtin:
    """A function that the package provides, called with the walk and the arguments."""

    name: str
    run: Callable[..., Any]
    shown: Callable[..., Any] | None = None

    @property
    def takes(self) -> str:
        """Its parameters, for messages."""
        names = [*inspect.signature(self.shown or self.run).parameters]
        return ", ".join(names if self.shown else names[1:])


@dataclass(eq=False, slots=True)
class Unknown:
    """A module or a name that the package does not have: refused when it is used, not before."""

    name: str


class KernelFile:
    """A file with kernels; its names are made when they are needed."""

    __slots__ = ()
    name: str

    def lookup(self, name: str, walk: Walk) -> Any:
        """Return the value of a name."""
        raise NotImplementedError


class Frame:
    """The variables of one call.

    - `names`: values of the names that the function assigns.
    - `module`: where its other names are looked up.
    - `walk`: walk that the call is a part of.
    - `parent`: variables of the function around it.
    """

    __slots__ = ("module", "names", "parent", "walk")

    def __init__(
        self, names: dict[str, Any], module: Module, walk: Walk, parent: Frame | None = None
    ) -> None:
        self.names = names
        self.module = module
        self.walk = walk
        self.parent = parent


@dataclass(eq=False, slots=True)
class Function:
    """A function of a kernel file.

    - `node`: its text.
    - `module`: its file.
    - `frame`: the variables around it, of a function in a function.
    - `kind`: ``"plain"``, ``"static"``, ``"class"`` or ``"property"``.
    - `owner`: the class whose method it is.
    """

    node: ast.FunctionDef | ast.Lambda
    module: Module
    frame: Frame | None = None
    kind: str = "plain"
    owner: Class | None = None

    @property
    def name(self) -> str:
        """Return its name."""
        return getattr(self.node, "name", "lambda")


@dataclass(eq=False, slots=True)
class Class:
    """A class of a kernel file.

    - `name`: its name.
    - `bases`: its base classes, ``nl.NKIObject`` left out.
    - `members`: methods and values.
    - `fields`: names of the fields, in the order of the parameters.
    - `frozen`: whether the fields of an instance stay as they are.
    - `enumeration`: whether its values are members of an enumeration.
    - `strict`: whether it is a data class: an object has all of its fields.
    """

    name: str
    bases: tuple[Class, ...]
    members: dict[str, Any]
    fields: tuple[str, ...] | None = None
    frozen: bool = False
    enumeration: bool = False
    strict: bool = False

    def find(self, name: str) -> Any:
        """Return a member of the class or of a base, `MISSING` if there is none."""
        if name in self.members:
            return self.members[name]
        for base in self.bases:
            found = base.find(name)
            if found is not MISSING:
                return found
        return MISSING

    def derives(self, other: Class) -> bool:
        """Tell whether it is another class or has it among its bases."""
        return self is other or any(base.derives(other) for base in self.bases)


@dataclass(eq=False, slots=True)
class Instance:
    """An object of a class of a kernel file."""

    kind: Class
    values: dict[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Compare the fields of data classes, otherwise the objects."""
        if self is other or not isinstance(other, Instance) or self.kind is not other.kind:
            return self is other
        return self.kind.fields is not None and self.values == other.values

    def __hash__(self) -> int:
        """Return the hash of the class: equal objects have equal ones."""
        return hash(id(self.kind))


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an enumeration of a kernel file."""

    kind: Class
    name: str
    value: Any

    def __eq__(self, other: object) -> bool:
        """Compare the class and the name."""
        return isinstance(other, Member) and (self.kind, self.name) == (other.kind, other.name)

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return hash(self.name)

    def __str__(self) -> str:
        """Return the name with the class's."""
        return f"{self.kind.name}.{self.name}"


@dataclass(eq=False, slots=True)
class Bound:
    """A method with the object that it belongs to."""

    function: Function
    first: Any


@dataclass(frozen=True, slots=True)
class Returned:
    """The signal of ``return``."""

    value: Any


#: The signals of ``break`` and ``continue``.
BREAK, CONTINUE = object(), object()

#: What a class or an object does not have.
MISSING: Any = object()


def unsupported(what: str, instead: str = "") -> Refused:
    """Return the refusal of something that NKI may well allow."""
    return Refused(
        "language", f"{what} is not supported here" + (f": {instead}" if instead else "")
    )
