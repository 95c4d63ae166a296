"""Statements of a kernel as functions of a frame, made once and called many times."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .. import limits
from ..errors import KernelError, Refused
from ..isa import Instruction
from ..tile import Register, Tile
from . import expressions as ex
from .attributes import describe
from .builtins import items_of, length, truth
from .grammar import STATEMENTS, is_text
from .objects import BREAK, CONTINUE, Frame, Returned, unsupported
from .scope import Scope

Statement = Callable[[Frame], Any]

#: Statements after which a block is over.
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def block(nodes: list[ast.stmt], scope: Scope) -> list[Statement]:
    """Return statements as functions, which return a signal where the block ends early.

    Statements that no execution reaches are not read, as Python does not look up their names.
    """
    ends = (at for at, node in enumerate(nodes, 1) if isinstance(node, _ENDS))
    return [statement(node, scope) for node in nodes[: next(ends, None)]]


def statement(node: ast.stmt, scope: Scope) -> Statement:
    """Return a function that does what a statement says."""
    run, line = _meaning(node, scope), node.lineno
    main = scope.module.main

    def guarded(frame: Frame) -> Any:
        walk = frame.walk
        walk.statements += 1
        if main:
            walk.line = line
        try:
            if walk.statements > limits.MOST_STATEMENTS:
                raise limits.too_many()
            return run(frame)
        except Refused as error:
            where = "" if main else f" ({frame.module.name}, line {line})"
            at = line if main else walk.line
            raise KernelError(at, error.reason + where, error.rule) from None
        except MemoryError as error:
            reason = f"not enough memory on this machine: {error}"
            raise KernelError(walk.line, reason) from error
        except RecursionError:
            raise KernelError(walk.line, "too deeply nested") from None

    return guarded


def _meaning(node: ast.stmt, scope: Scope) -> Statement:
    match node:
        case ast.Pass():
            return lambda frame: None
        case ast.Expr():
            return _effect(node, scope)
        case ast.Assign():
            return _assignment(node, scope)
        case ast.AnnAssign():
            return _annotated(node, scope)
        case ast.AugAssign():
            return _augmented(node, scope)
        case ast.For():
            return _loop(node, scope)
        case ast.While():
            return _while(node, scope)
        case ast.If():
            return _if(node, scope)
        case ast.Assert():
            return _assertion(node, scope)
        case ast.Raise():
            return _raise(node, scope)
        case ast.Return():
            if node.value is None:
                return lambda frame: Returned(None)
            value = ex.expression(node.value, scope)
            return lambda frame: Returned(value(frame))
        case ast.Break():
            return lambda frame: BREAK
        case ast.Continue():
            return lambda frame: CONTINUE
        case ast.FunctionDef():
            return _function(node, scope)
        case ast.ClassDef():
            return _class(node)
        case ast.Import() | ast.ImportFrom():
            return _import(node)
        case ast.Delete():
            return _delete(node)
        case ast.Try():
            return _try(node, scope)
        case ast.With() if _is_no_reorder(node, scope):
            body = block(node.body, scope)  # instructions are in the order of the text anyway
            return lambda frame: _run(body, frame)
    reason = STATEMENTS.get(type(node), "this statement is not supported here")
    raise KernelError(node.lineno, reason)


def _effect(node: ast.Expr, scope: Scope) -> Statement:
    if is_text(node):
        return lambda frame: None
    value = ex.expression(node.value, scope)
    if not isinstance(node.value, ast.Call):
        raise KernelError(node.lineno, "an expression without effect")

    def run(frame: Frame) -> None:
        value(frame)

    return run


def _no_results(node: ast.expr, scope: Scope) -> None:
    """Refuse the value of an instruction: older editions had one."""
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
            known = scope.module_member(item.func)
            if known is not None and isinstance(known[0], Instruction):
                raise KernelError(
                    item.lineno,
                    "instructions return nothing: the result goes to dst, the first argument",
                )


def _assignment(node: ast.Assign, scope: Scope) -> Statement:
    if scope.strict:
        _no_results(node.value, scope)
    value = ex.expression(_named(node, scope), scope)
    targets = [scope.target(target, ex.expression) for target in node.targets]
    names = _names(node.targets[0])

    def run(frame: Frame) -> None:
        made = value(frame)
        _name_tensors(made, names)
        for assign in targets:
            assign(frame, made)

    return run


def _named(node: ast.Assign, scope: Scope) -> ast.expr:
    """Return the value; a new tensor is called what it is assigned to."""
    call, target = node.value, node.targets[0]
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return call
    known = scope.module_member(call.func)
    if known is None or getattr(known[0], "name", "") not in ("nl.ndarray", "nl.zeros"):
        return call
    if not isinstance(target, ast.Name) or any(it.arg in ("name", None) for it in call.keywords):
        return call
    name = ast.keyword("name", ast.copy_location(ast.Constant(target.id), call))
    return ast.copy_location(ast.Call(call.func, call.args, [*call.keywords, name]), call)


def _names(target: ast.expr) -> str | list[str] | None:
    """Return what new tensors are called that are assigned to a target."""
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, (ast.Tuple, ast.List)):
        return [item.id if isinstance(item, ast.Name) else "" for item in target.elts]
    return None


def _name_tensors(value: Any, names: str | list[str] | None) -> None:
    """Give new tensors the name that they are assigned to."""
    if type(value) is Tile:
        if isinstance(names, str):
            value.buffer.info.call(names)
    elif type(value) in (tuple, list) and len(value) <= 64:
        for at, item in enumerate(value):
            if type(item) is Tile and isinstance(names, str):
                item.buffer.info.call(f"{names}[{at}]")
            elif type(item) is Tile and isinstance(names, list) and at < len(names):
                item.buffer.info.call(names[at])


def _annotated(node: ast.AnnAssign, scope: Scope) -> Statement:
    if node.value is None:
        return lambda frame: None
    assign = ast.Assign([node.target], node.value)
    return _assignment(ast.copy_location(assign, node), scope)


def _augmented(node: ast.AugAssign, scope: Scope) -> Statement:
    # The index of an item is evaluated twice: expressions have no effect.
    read = ast.parse(ast.unparse(node.target), mode="eval").body
    for item in ast.walk(read):
        ast.copy_location(item, node)
    value = ex.binary(node.op, ex.expression(read, scope), ex.expression(node.value, scope))
    assign = scope.target(node.target, ex.expression)
    return lambda frame: assign(frame, value(frame))


def _loop(node: ast.For, scope: Scope) -> Statement:
    over = ex.expression(node.iter, scope)
    assign = scope.target(node.target, ex.expression)
    body = block(node.body, scope)
    with scope.branch():
        after = block(node.orelse, scope)

    # What is sure to come is counted at once, to refuse it before hours have gone by.
    sure = 0 if _leaves(node) else len(body)

    def run(frame: Frame) -> Any:
        items = items_of(over(frame))
        walk = frame.walk
        count = length(items)
        walk.statements += count
        if walk.statements + count * sure > limits.MOST_STATEMENTS:
            raise limits.too_many()
        for item in items:
            assign(frame, item)
            signal = _run(body, frame)
            if signal is BREAK:
                return None
            if type(signal) is Returned:
                return signal
        return _run(after, frame)

    return run


def _leaves(node: ast.For) -> bool:
    """Tell whether a loop may end early."""
    return any(isinstance(item, (ast.Break, ast.Return)) for item in ast.walk(node))


def _run(body: list[Statement], frame: Frame) -> Any:
    """Execute a block up to its end, or up to the first signal, which is returned."""
    for item in body:
        signal = item(frame)
        if signal is not None:
            return signal
    return None


def _while(node: ast.While, scope: Scope) -> Statement:
    if node.orelse:
        raise KernelError(node.lineno, "`while` with `else` is not supported here")
    test = ex.expression(node.test, scope)
    with scope.branch():
        body = block(node.body, scope)

    def run(frame: Frame) -> Any:
        while True:
            value = test(frame)
            # How often it repeats depends on data: it is walked once.
            once = isinstance(value, Register) and value.value is None
            if not once and not truth(value):
                return None
            frame.walk.count(1)
            signal = _run(body, frame)
            if type(signal) is Returned:
                return signal
            if once or signal is BREAK:
                return None

    return run


def _if(node: ast.If, scope: Scope) -> Statement:
    test = ex.expression(node.test, scope)
    with scope.branch():
        then, other = block(node.body, scope), block(node.orelse, scope)

    def run(frame: Frame) -> Any:
        return _run(then if truth(test(frame)) else other, frame)

    return run


def _assertion(node: ast.Assert, scope: Scope) -> Statement:
    test = ex.expression(node.test, scope)
    with scope.branch():
        message = None if node.msg is None else ex.expression(node.msg, scope)
    text = ast.unparse(node.test)

    def run(frame: Frame) -> None:
        if not truth(test(frame)):
            said = "" if message is None else f": {describe(message(frame))}"
            raise Refused("assertion", f"the kernel asserts {text}{said}")

    return run


def _raise(node: ast.Raise, scope: Scope) -> Statement:
    text = "an exception" if node.exc is None else ast.unparse(node.exc)

    def run(frame: Frame) -> None:
        raise Refused("assertion", f"the kernel raises {text}")

    return run


def _function(node: ast.FunctionDef, scope: Scope) -> Statement:
    from .functions import make_function

    if not isinstance(scope.node, ast.Module):
        scope.inner(node)
    name = node.name
    return lambda frame: frame.names.__setitem__(name, make_function(node, frame))


def _class(node: ast.ClassDef) -> Statement:
    from .functions import make_class

    name = node.name
    return lambda frame: frame.names.__setitem__(name, make_class(node, frame))


def _import(node: ast.Import | ast.ImportFrom) -> Statement:
    def run(frame: Frame) -> None:
        frame.names.update(frame.module.import_of(node, frame.walk))

    return run


def _try(node: ast.Try, scope: Scope) -> Statement:
    """Return what is tried: no handler ever runs, because errors here are refusals."""
    body = block([*node.body, *node.orelse, *node.finalbody], scope)
    return lambda frame: _run(body, frame)


def _is_no_reorder(node: ast.With, scope: Scope) -> bool:
    item = node.items[0]
    if len(node.items) > 1 or item.optional_vars is not None:
        return False
    if not isinstance(item.context_expr, ast.Call):
        return False
    return scope.module.path_of(item.context_expr) == "nki.language.no_reorder"


def _delete(node: ast.Delete) -> Statement:
    names = [item.id for item in node.targets if isinstance(item, ast.Name)]

    def run(frame: Frame) -> None:
        if len(names) != len(node.targets):
            raise unsupported("`del` of anything but names")
        for name in names:
            frame.names.pop(name, None)

    return run
