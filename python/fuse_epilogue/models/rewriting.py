"""Applies a rewriting of Relax expressions to a whole module."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax


def rewritten(mod: ir.IRModule, mutator: type[Any]) -> ir.IRModule:
    """Return a module whose Relax functions a mutator has visited.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        Stays as it is; its attributes and global infos are kept.
    mutator : type
        A ``relax.PyExprMutator``, decorated with ``relax.expr_functor.mutator``.
    """
    visitor = mutator(mod)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            visitor.builder_.update_func(var, visitor.visit_expr(func))
    done = visitor.builder_.get()
    done = ir.IRModule(done.functions, mod.attrs, mod.global_infos)
    return relax.transform.CanonicalizeBindings()(done)
