"""Applies a rewriting of Relax expressions to a whole module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax, tirx, transform
from tvm.ir import Call, PrimType

from ...tir.walk import operator_name

#: TVM's pattern of operators that nothing is fused with.
OPAQUE = 8
#: Elementwise operators, of one operand and of two.
UNARY = frozenset(
    f"relax.{name}"
    for name in (
        *("abs", "astype", "ceil", "clip", "cos", "erf", "exp", "floor", "log", "negative"),
        *("nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu"),
        *("nn.softplus", "round", "rsqrt", "sigmoid", "sin", "sqrt", "square", "tanh"),
    )
)
BINARY = frozenset(
    f"relax.{name}"
    for name in ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")
)


def graph_pass(rewrite: Callable[[ir.IRModule], ir.IRModule]) -> Callable[[], Any]:
    """Return what makes a pass of a function from module to module, which has its name.

    - `rewrite`: leaves the module that it gets as it is.
    """

    def apply(mod: ir.IRModule, _context: transform.PassContext) -> ir.IRModule:
        return rewrite(mod)

    return lambda: transform.module_pass(apply, opt_level=0, name=rewrite.__name__)


def rewritten(mod: ir.IRModule, mutator: type[Any]) -> ir.IRModule:
    """Return a module whose Relax functions a mutator has visited.

    - `mod`: stays as it is; its attributes and global infos are kept.
    - `mutator`: a ``relax.PyExprMutator``, decorated with ``relax.expr_functor.mutator``.
    """
    visitor = mutator(mod)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            visitor.builder_.update_func(var, visitor.visit_expr(func))
    done = visitor.builder_.get()
    done = ir.IRModule(done.functions, mod.attrs, mod.global_infos)
    return relax.transform.CanonicalizeBindings()(done)


def with_functions(
    mod: ir.IRModule, rewrite: Callable[[Any, relax.BlockBuilder], Any]
) -> ir.IRModule:
    """Return a module whose blocks of bindings are rewritten, with the functions added for them.

    - `rewrite`: takes a block and the builder that functions are added to; returns the same block
      where nothing changes.
    """
    builder = relax.BlockBuilder(mod)
    changed = {}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
            blocks = [rewrite(block, builder) for block in func.body.blocks]
            if any(new is not old for new, old in zip(blocks, func.body.blocks, strict=True)):
                body = relax.SeqExpr(blocks, func.body.body)
                changed[var] = relax.Function(
                    func.params, body, func.ret_ty, func.is_pure, func.attrs
                )
    if not changed:
        return mod
    functions = {**builder.get().functions, **changed}
    done = ir.IRModule(functions, mod.attrs, mod.global_infos)
    return relax.transform.DeadCodeElimination()(done)


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors that a call reads; a symbolic size is not one of them."""
    return [each for each in value.args if is_tensor(each)]


def with_arguments(call: Any, arguments: list[Any]) -> Any:
    """Return a call of the same operator on other arguments."""
    return Call(call.op, arguments, call.attrs, call.ty_args)


def is_tensor(value: Any) -> bool:
    """Return whether an expression is a variable of a tensor, not of a symbolic size."""
    return isinstance(value, relax.Var) and not isinstance(value.ty, PrimType)


def known_shape(value: Any) -> list[Any] | None:
    """Return the shape of a tensor, constant or symbolic; None where it is not known."""
    shape = None if value is None else getattr(value.ty, "shape", None)
    return list(shape.values) if shape is not None and hasattr(shape, "values") else None


def constant_shape(value: Any) -> list[int] | None:
    """Return the shape of a tensor, None where it is not constant."""
    sizes = known_shape(value)
    if sizes is None or not all(isinstance(size, tirx.IntImm) for size in sizes):
        return None
    return [int(size) for size in sizes]


def bound_call(visitor: Any, value: Any, operator: str) -> Any:
    """Return the call of an operator that a variable is bound to, None for anything else.

    - `visitor`: tvm.relax.PyExprMutator.
    - `value`: tvm.relax.Expr.
    - `operator`: name of the operator, such as "relax.reshape".
    """
    bound = visitor.lookup_binding(value) if isinstance(value, relax.Var) else None
    same = operator_name(bound) == operator
    return bound if same else None


def axes_of(transpose: Any) -> list[int]:
    """Return the axes of a ``permute_dims``, which TVM makes only where their number is known."""
    count = int(transpose.args[0].ty.ndim)
    if transpose.attrs.axes is None:
        return list(range(count))[::-1]
    return [int(axis) % count for axis in transpose.attrs.axes]
