"""Reads a kernel, statement by statement and expression by expression."""

from __future__ import annotations

import ast

from .calls import access_pattern, allocation, bind, positional
from .errors import KernelError
from .grammar import (
    ALLOCATIONS,
    COMPARISONS,
    EXPRESSIONS,
    OLD_NAMES,
    OPERATORS,
    STATEMENTS,
    TILE_SIZE,
    is_text,
    module_name,
)
from .instructions import INSTRUCTIONS
from .trace import ITEMSIZE


class Reader:
    """Looks at each statement and expression of a kernel."""

    def __init__(self, known: set[str]) -> None:
        self.known = known

    # ---- Statements --------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Check a statement other than the last."""
        match node:
            case ast.Pass():
                pass
            case ast.Expr():
                self.instruction(node)
            case ast.Assign(targets=[target]):
                self.target(target)
                self.value(node.value)
            case ast.AugAssign(target=ast.Name()):
                self.operator(node, node.op)
                self.expression(node.value)
            case ast.For(target=ast.Name(), orelse=[]):
                self.loop(node.iter)
                self.block(node.body)
            case ast.If():
                self.expression(node.test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.Assert():
                self.expression(node.test)
                if node.msg is not None and not (
                    isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str)
                ):
                    raise KernelError(node.lineno, "the message of an assertion is a plain string")
            case ast.Return():
                raise KernelError(node.lineno, "`return` is the last statement of a kernel")
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                raise KernelError(
                    node.lineno, "assign to one name; tiles are written by instructions (dst)"
                )
            case ast.For():
                raise KernelError(node.lineno, "loops are `for name in range(...)`, without else")
            case _:
                reason = STATEMENTS.get(type(node), "this statement is not available in a kernel")
                raise KernelError(node.lineno, reason)

    def block(self, body: list[ast.stmt]) -> None:
        """Check statements."""
        for statement in body:
            self.statement(statement)

    def returned(self, node: ast.stmt) -> None:
        """Check the last statement."""
        assert isinstance(node, ast.Return)
        value = node.value
        items = value.elts if isinstance(value, ast.Tuple) else [value]
        for item in items:
            if not isinstance(item, ast.Name):
                raise KernelError(node.lineno, "return names of tensors in nl.shared_hbm")
            self.expression(item)

    def target(self, node: ast.expr) -> None:
        """Check the left side of an assignment."""
        if isinstance(node, ast.Tuple) and all(isinstance(it, ast.Name) for it in node.elts):
            return
        if not isinstance(node, ast.Name):
            raise KernelError(
                node.lineno, "assign to names; tiles are written by instructions (dst)"
            )

    def loop(self, node: ast.expr) -> None:
        """Check what a loop runs over."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "range" and 1 <= len(node.args) <= 3:
                for arg in node.args:
                    self.expression(arg)
                if not node.keywords:
                    return
        elif isinstance(node, ast.Call):
            self.old(node.func)
        raise KernelError(node.lineno, "loops are `for name in range(...)`")

    def old(self, node: ast.expr) -> None:
        """Refuse a name of an older edition."""
        name = module_name(node, "nl")
        if name in OLD_NAMES:
            raise KernelError(
                node.lineno, f"nl.{name} is of an older edition: use {OLD_NAMES[name]}"
            )

    def instruction(self, node: ast.Expr) -> None:
        """Check an instruction."""
        call = node.value
        if is_text(node):
            raise KernelError(node.lineno, "strings are not available, except for the docstring")
        if not isinstance(call, ast.Call):
            raise KernelError(node.lineno, "an expression without effect")
        self.old(call.func)
        name = module_name(call.func, "nisa")
        if name is None:
            raise KernelError(node.lineno, "only instructions, nisa.name(...), are statements")
        if name not in INSTRUCTIONS:
            raise KernelError(
                node.lineno, f"nisa.{name} is not among the instructions: {', '.join(INSTRUCTIONS)}"
            )
        for argument in bind(call, name).values():
            if isinstance(argument, ast.expr):
                self.expression(argument)

    # ---- Expressions -------------------------------------------------------------------------

    def value(self, node: ast.expr) -> None:
        """Check the right side of an assignment: tensors are allocated only there."""
        if isinstance(node, ast.Call) and module_name(node.func, "nl") in ALLOCATIONS:
            shape, _, _ = allocation(node)
            self.expression(shape)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                self.value(item)
        else:
            self.expression(node)

    def operator(self, node: ast.stmt | ast.expr, operator: ast.operator) -> None:
        """Check an operator on integers."""
        if not isinstance(operator, OPERATORS):
            raise KernelError(node.lineno, "operators on integers are + - * // %")

    def expression(self, node: ast.expr) -> None:
        """Check an expression."""
        match node:
            case ast.Constant(value=bool() | int() | float() | None):
                pass
            case ast.Constant(value=str()):
                raise KernelError(
                    node.lineno,
                    "strings are not allowed: memories are nl.sbuf, nl.psum, nl.hbm and "
                    "nl.shared_hbm, operations and types names such as nl.add and nl.float32",
                )
            case ast.Name():
                if node.id not in self.known:
                    raise KernelError(node.lineno, f"'{node.id}' is not defined in the kernel")
            case ast.BinOp():
                self.operator(node, node.op)
                self.expression(node.left)
                self.expression(node.right)
            case ast.UnaryOp(op=ast.USub() | ast.Not()):
                self.expression(node.operand)
            case ast.BoolOp():
                for item in node.values:
                    self.expression(item)
            case ast.Compare():
                for operator in node.ops:
                    if isinstance(operator, (ast.Is, ast.IsNot)):
                        raise KernelError(node.lineno, "`is` is not allowed in a kernel: use ==")
                    if not isinstance(operator, COMPARISONS):
                        raise KernelError(node.lineno, "integers are compared by == != < <= > >=")
                for item in (node.left, *node.comparators):
                    self.expression(item)
            case ast.IfExp():
                for item in (node.test, node.body, node.orelse):
                    self.expression(item)
            case ast.Tuple():
                for item in node.elts:
                    self.expression(item)
            case ast.Subscript():
                self.expression(node.value)
                self.subscript(node.slice)
            case ast.Attribute():
                self.attribute(node)
            case ast.Call():
                self.call(node)
            case _:
                reason = EXPRESSIONS.get(type(node), "this expression is not available in a kernel")
                raise KernelError(node.lineno, reason)

    def subscript(self, node: ast.expr) -> None:
        """Check the index in brackets."""
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        for item in items:
            if isinstance(item, ast.Slice):
                for bound in (item.lower, item.upper, item.step):
                    if bound is not None:
                        self.expression(bound)
            else:
                self.expression(item)

    def attribute(self, node: ast.Attribute) -> None:
        """Check ``x.name``."""
        self.old(node)
        if module_name(node.value, "nl") == "tile_size":
            if node.attr not in TILE_SIZE:
                raise KernelError(node.lineno, f"nl.tile_size has {', '.join(TILE_SIZE)}")
            return
        if module_name(node, "nl") in ITEMSIZE:
            return
        if isinstance(node.value, ast.Name) and node.value.id in ("nl", "nisa", "nki"):
            raise KernelError(node.lineno, f"{ast.unparse(node)} is not a value here")
        if node.attr not in ("shape", "dtype"):
            raise KernelError(node.lineno, f"tiles have no '.{node.attr}' here")
        self.expression(node.value)

    def call(self, node: ast.Call) -> None:
        """Check a call that has a value."""
        self.old(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            if node.keywords or len(node.args) < 2:
                raise KernelError(node.lineno, f"{node.func.id} takes two or more integers")
            for arg in node.args:
                self.expression(arg)
        elif module_name(node.func, "nl") == "ds":
            for item in positional(node, ("start", "size")):
                self.expression(item)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "ap":
            self.expression(node.func.value)
            pattern, offset = access_pattern(node)
            for pair in pattern:
                for item in pair:
                    self.expression(item)
            if offset is not None:
                self.expression(offset)
        elif module_name(node.func, "nisa") is not None:
            raise KernelError(
                node.lineno,
                "instructions return nothing: the result goes to dst, the first argument",
            )
        elif module_name(node.func, "nl") in ALLOCATIONS:
            raise KernelError(node.lineno, "a tensor is bound to a name: name = nl.ndarray(...)")
        else:
            raise KernelError(node.lineno, f"{ast.unparse(node.func)} cannot be called in a kernel")
