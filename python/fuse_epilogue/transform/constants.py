"""Constant arguments of a module's functions: which are constant, and how they are packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst, GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..kernels.scheduled import Packing
from ..tir.walk import handle, operator_name
from .functions import relax_calls


def _is_call_tir(node: Any) -> bool:
    return operator_name(node) == "relax.call_tir"


def call_counts(mod: ir.IRModule) -> Counter[int]:
    """Return by function how many calls of it the Relax functions of a module have."""
    calls = relax_calls(*mod.functions.values())
    return Counter(handle(call.args[0]) for call in calls if _is_call_tir(call))


def constant_parameters(mod: ir.IRModule) -> dict[int, frozenset[int]]:
    """Return by function which of its parameters are constants at every call.

    A function that is used otherwise than by ``call_tir`` has none.
    """
    found: dict[int, frozenset[int]] = {}
    for call in relax_calls(*mod.functions.values()):
        if not _is_call_tir(call):
            for argument in (call.op, *call.args):
                if isinstance(argument, GlobalVar):
                    found[handle(argument)] = frozenset()
            continue
        arguments = call.args[1].fields
        fixed = frozenset(
            place for place, each in enumerate(arguments) if isinstance(each, GenericConst)
        )
        var = handle(call.args[0])
        found[var] = fixed & found.get(var, fixed)
    return found


def with_packed_constants(
    mod: ir.IRModule, packings: Mapping[int, Mapping[int, Packing]]
) -> ir.IRModule:
    """Return a module whose constants are laid out as its functions read them.

    - `mod`: with functions that take packed arguments, and calls that do not.
    - `packings`: by the handle of a function's variable, and the index of a parameter.
    """
    # The type of a function's variable has the shapes of its arguments.
    renewed = {
        handle(var): _typed_as(var, mod[var]) for var in mod.functions if packings.get(handle(var))
    }
    packer = _ConstantPacker(mod, packings, renewed)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            packer.builder_.update_func(var, packer.visit_expr(func))
    functions = {
        renewed.get(handle(var), var): func for var, func in packer.builder_.get().functions.items()
    }
    return ir.IRModule(functions, mod.attrs, mod.global_infos)


def _typed_as(var: GlobalVar, func: Any) -> GlobalVar:
    """Return another variable of the same name, with the type of a function."""
    made = GlobalVar(var.name_hint)
    relax.expr._update_type(made, func.ty)
    return made


@mutator
class _ConstantPacker(PyExprMutator):
    """Replaces the constant arguments of calls by packed ones, each constant once per packing."""

    def __init__(
        self,
        mod: ir.IRModule,
        packings: Mapping[int, Mapping[int, Packing]],
        renewed: Mapping[int, GlobalVar],
    ) -> None:
        super().__init__(mod)
        self.packings = packings
        self.renewed = renewed
        self.packed: dict[tuple[Any, int], Any] = {}

    def visit_call_(self, call: Any) -> Any:
        """Return a call with packed constants."""
        if not _is_call_tir(call):
            return super().visit_call_(call)
        packing = self.packings.get(handle(call.args[0]))
        if not packing:
            return super().visit_call_(call)
        arguments = [
            self._pack(each, packing[place]) if place in packing else self.visit_expr(each)
            for place, each in enumerate(call.args[1].fields)
        ]
        var = self.renewed[handle(call.args[0])]
        found = call.ty_args[0]
        types = list(found.fields) if isinstance(found, relax.TupleType) else found
        return relax.call_tir(var, relax.Tuple(arguments), types)

    def _pack(self, constant: Any, packing: Packing) -> Any:
        # Functions with the same layout share what is packed, if they share the constant.
        key = (packing.pack, handle(constant))
        if key not in self.packed:
            array = packing.pack(constant.value.numpy())
            if tuple(array.shape) != tuple(packing.shape):
                raise ValueError(f"a constant was packed to {array.shape}, not to {packing.shape}")
            self.packed[key] = relax.const(np.ascontiguousarray(array), packing.dtype)
        return self.packed[key]
