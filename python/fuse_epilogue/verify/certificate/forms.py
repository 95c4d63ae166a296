"""The forms of the fields of a certificate: anybody may make one, so that each is checked first.

A field of another form is refused by its name. Its claim is proved later, by code that relies
on the forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Var, is_prim_expr, is_prim_var

from ...cascade_certificate import CascadeCertificate, CascadeStage
from ...certificate import Certificate, EpilogueProof, TailProof
from ..evaluation.scalars import SCALAR_TYPES, STORED_TYPES
from .subject import demand

#: Whether a value is of a form, and what such values are.
Form = tuple[Callable[[Any], bool], str]


def _is_variable(value: Any) -> bool:
    return bool(is_prim_var(value)) and str(value.ty.dtype) in SCALAR_TYPES


def _is_expression(value: Any) -> bool:
    known = SCALAR_TYPES | STORED_TYPES
    return bool(is_prim_expr(value)) and str(value.ty.dtype) in known


def _is_index(value: Any) -> bool:
    type = SCALAR_TYPES.get(str(value.ty.dtype)) if is_prim_expr(value) else None
    return type is not None and type.kind in "iu"


def _is_buffer(value: Any) -> bool:
    return isinstance(value, Var) and isinstance(value.ty, tirx.BufferType)


def _is_count(value: Any) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int and 0 <= value < 1 << 31


def _is_pair(value: Any) -> bool:
    is_tuple = isinstance(value, tuple) and len(value) == 2
    return is_tuple and _is_variable(value[0]) and _is_index(value[1])


_NAME: Form = (lambda value: isinstance(value, str), "a str")
_FLAG: Form = (lambda value: isinstance(value, bool), "a bool")
_COUNT: Form = (_is_count, "an int from 0 to 2**31 - 1")
_VARIABLE: Form = (_is_variable, "a scalar variable")
_EXPRESSION: Form = (_is_expression, "an expression of a scalar type")
_INDEX: Form = (_is_index, "an expression of an integer type")
_BUFFER: Form = (_is_buffer, "a buffer")
_PAIR: Form = (_is_pair, "a variable with an expression")


def _each(form: Form) -> Form:
    """Return the form of a tuple whose items are of one form."""
    holds, what = form
    return (
        lambda value: isinstance(value, tuple) and all(map(holds, value)),
        f"a tuple, each item {what}",
    )


def _optional(form: Form) -> Form:
    holds, what = form
    return lambda value: value is None or holds(value), f"{what}, or None"


def _of(part: type) -> Form:
    return lambda value: isinstance(value, part), f"of type {part.__name__}"


#: The forms of all fields, by the class that has them.
FORMS: dict[type, dict[str, Form]] = {
    Certificate: {
        "numerics": _NAME,
        "reassociates": _FLAG,
        "reduction": _NAME,
        "monoid": _NAME,
        "monoid_after": _NAME,
        "accumulator": _BUFFER,
        "indices": _each(_INDEX),
        "result": _BUFFER,
        "result_indices": _each(_INDEX),
        "hole": _VARIABLE,
        "absorbed": _EXPRESSION,
        "distributed": _EXPRESSION,
        "init": _EXPRESSION,
        "loops": _each(_VARIABLE),
        "inverse": _each(_INDEX),
        "epilogues": _each(_of(EpilogueProof)),
        "tails": _each(_of(TailProof)),
        "removed": _each(_BUFFER),
        "kept": _each(_BUFFER),
    },
    EpilogueProof: {
        "name": _NAME,
        "axes": _each(_VARIABLE),
        "h": _each(_INDEX),
        "loops": _each(_VARIABLE),
        "inverse": _each(_INDEX),
    },
    TailProof: {
        "name": _NAME,
        "output": _BUFFER,
        "indices": _each(_INDEX),
        "value": _EXPRESSION,
    },
    CascadeCertificate: {
        "numerics": _NAME,
        "block": _NAME,
        "rows": _each(_VARIABLE),
        "rows_extents": _each(_INDEX),
        "keys": _each(_VARIABLE),
        "keys_extents": _each(_INDEX),
        "shared": _COUNT,
        "factor": _COUNT,
        "parts": _COUNT,
        "count": _VARIABLE,
        "total": _VARIABLE,
        "stages": _each(_of(CascadeStage)),
        "removed": _each(_NAME),
    },
    CascadeStage: {
        "name": _NAME,
        "monoid": _NAME,
        "rule": _NAME,
        "accumulator": _BUFFER,
        "indices": _each(_INDEX),
        "axes": _each(_VARIABLE),
        "axes_extents": _each(_INDEX),
        "bindings": _each(_PAIR),
        "init": _EXPRESSION,
        "term": _EXPRESSION,
        "value": _VARIABLE,
        "previous": _VARIABLE,
        "accumulated": _VARIABLE,
        "finished": _VARIABLE,
        "state": _BUFFER,
        "part_state": _optional(_BUFFER),
        "state_init": _EXPRESSION,
        "step": _EXPRESSION,
        "correction": _EXPRESSION,
        "tail": _optional(_EXPRESSION),
        "rolled": _optional(_EXPRESSION),
        "deferred": _optional(_EXPRESSION),
        "quotient": _optional(_EXPRESSION),
        "carriers": _each(_COUNT),
        "guards": _each(_NAME),
    },
}

#: Fields that are tuples of what has fields of its own.
_PARTS = ("epilogues", "tails", "stages")


def check_forms(owner: Any, prefix: str = "") -> None:
    """Prove that every field of a certificate is of its form.

    - `owner` (Certificate or CascadeCertificate, or a part of one)
    - `prefix`: put before the names of fields, such as ``"tails[0]."``.
    - Raises CertificateError: naming the field.
    """
    forms = next(forms for kind, forms in FORMS.items() if isinstance(owner, kind))
    for name, (holds, what) in forms.items():
        value = getattr(owner, name)
        unknown = is_prim_expr(value) and str(value.ty.dtype) not in SCALAR_TYPES
        reason = f"the checker does not know its type, {value.ty.dtype}" if unknown else ""
        demand(holds(value), f"{prefix}{name}", reason or f"it is not {what}")
    for name in _PARTS:
        for place, part in enumerate(getattr(owner, name, ())):
            check_forms(part, f"{prefix}{name}[{place}].")
