"""Reads what blocks compute: TIR's expressions over elements of buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.ir import Call, TensorLoad, prim

from .integers import Integers
from .linear import Linear
from .program import Binary, Choose, Convert, Expression, Function, Load, Number, Tensor
from .refusals import EmitError

_BINARY = {
    prim.Add: "add",
    prim.Sub: "subtract",
    prim.Mul: "multiply",
    prim.Div: "divide",
    prim.Max: "maximum",
    prim.Min: "minimum",
}
_FUNCTIONS = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "exp": "exp",
    "log": "log",
    "erf": "erf",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
}


class Values:
    """Reads expressions.

    Attributes
    ----------
    tensors : dict[int, Tensor]
        Tensors of the buffers' variables, by handle.
    """

    def __init__(self, integers: Integers) -> None:
        self.integers = integers
        self.tensors: dict[int, Tensor] = {}

    def known(self, var: Any, block: str) -> Tensor:
        """Return the tensor of a buffer's variable."""
        found = self.tensors.get(var.__chandle__())
        if found is None:
            raise EmitError("statement", block, f"'{var.name}' is allocated nowhere")
        return found

    def expression(self, expr: Any, block: str) -> Expression:
        """Read what a block computes.

        Raises
        ------
        EmitError
            No instruction does that.
        """
        dtype = str(expr.ty.dtype)
        match expr:
            case prim.FloatImm() | prim.IntImm():
                return Number(expr.value, dtype)
            case TensorLoad():
                tensor = self.known(expr.source, block)
                index = tuple(self.integers.linear(each, block) for each in expr.indices)
                return Load(tensor, index or (Linear(),), tensor.dtype)
            case prim.Cast():
                a = self.expression(expr.value, block)
                return a if a.dtype == dtype else Convert(a, dtype)
            case prim.Select():
                return self._choose(expr.condition, expr.true_value, expr.false_value, block)
            case Call():
                name = str(getattr(expr.op, "name", expr.op)).split(".")[-1]
                if name == "if_then_else":
                    return self._choose(expr.args[0], expr.args[1], expr.args[2], block)
                if name in _FUNCTIONS:
                    inside = self.expression(expr.args[0], block)
                    if name == "sqrt" and isinstance(inside, Number) and dtype == "float32":
                        # Correctly rounded everywhere, so it may be computed here.
                        return Number(float(np.sqrt(np.float32(inside.value))), dtype)
                    return Function(_FUNCTIONS[name], inside, dtype)
                raise EmitError("expression", block, f"no instruction computes {name}")
        if type(expr) in _BINARY:
            a, b = self.expression(expr.a, block), self.expression(expr.b, block)
            return Binary(_BINARY[type(expr)], a, b, dtype)
        kind = type(expr).__name__
        raise EmitError("expression", block, f"no instruction computes {kind}, in '{expr}'")

    def _choose(self, condition: Any, a: Any, b: Any, block: str) -> Expression:
        found = self.integers.conditions(condition, block)
        if found is None:
            return self.expression(b, block)
        yes = self.expression(a, block)
        return Choose(tuple(found), yes, self.expression(b, block), yes.dtype) if found else yes
