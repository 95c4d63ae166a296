"""Walks a kernel with all loops unrolled: executes it on numpy, or records its instructions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .calls import allocation, bind
from .errors import KernelError, Refused
from .expressions import Expression, binary, expression, integer, truth
from .grammar import ALLOCATIONS, SPACES, module_name
from .instructions import INSTRUCTIONS
from .language import KernelText
from .limits import MOST_DIMS, MOST_STATEMENTS, small
from .trace import ITEMSIZE, Trace
from .values import Tile
from .walk import Spec, Walk

Statement = Callable[[Walk], None]


class Program:
    """A kernel, ready to be walked.

    Parameters
    ----------
    text : KernelText
        Result of `fuse_epilogue.neuron.language.parse`.
    """

    def __init__(self, text: KernelText) -> None:
        self._text = text
        self._body = [_statement(node) for node in text.body]

    def record(self, specs: Sequence[Spec]) -> Trace:
        """Return the instructions and buffers for arguments of these shapes and types."""
        return self._walk(specs, None).trace

    def execute(self, arrays: Sequence[np.ndarray], specs: Sequence[Spec]) -> list[np.ndarray]:
        """Return what the kernel computes."""
        with np.errstate(all="ignore"):
            walk = self._walk(specs, arrays)
        return [tile.buffer.array() for tile in walk.outputs]

    def _walk(self, specs: Sequence[Spec], arrays: Sequence[np.ndarray] | None) -> Walk:
        text = self._text
        walk = Walk(text.name, arrays is not None)
        for at, (name, spec) in enumerate(zip(text.parameters, specs, strict=True)):
            walk.argument(name, spec, None if arrays is None else arrays[at], text.line)
        for statement in self._body:
            statement(walk)
        return walk


# ---- Statements --------------------------------------------------------------------------------


def _statement(node: ast.stmt) -> Statement:
    """Return a function that does what a statement says."""
    run = _meaning(node)
    line = node.lineno

    def guarded(walk: Walk) -> None:
        walk.statements += 1
        try:
            if walk.statements > MOST_STATEMENTS:
                raise Refused("language", _too_many())
            run(walk)
        except Refused as error:
            raise KernelError(line, error.reason, error.rule) from None
        except MemoryError as error:
            raise KernelError(line, f"not enough memory on this machine: {error}") from error

    return guarded


def _too_many() -> str:
    return f"more than {MOST_STATEMENTS} statements and iterations, with all loops unrolled"


def _meaning(node: ast.stmt) -> Statement:
    match node:
        case ast.Pass():
            return lambda walk: None
        case ast.Expr(value=ast.Call() as call):
            return _instruction(call)
        case ast.Assign(targets=[target]):
            return _assignment(target, node.value)
        case ast.AugAssign(target=ast.Name(id=name)):
            load = expression(ast.copy_location(ast.Name(name, ast.Load()), node))
            combined = binary(node.op, load, expression(node.value))
            return lambda walk: walk.variables.__setitem__(name, combined(walk.variables))
        case ast.For():
            return _loop(node)
        case ast.If():
            return _if(node)
        case ast.Assert():
            return _assertion(node)
        case ast.Return():
            assert node.value is not None
            value = expression(node.value)
            several = isinstance(node.value, ast.Tuple)
            return lambda walk: walk.finish(
                value(walk.variables) if several else (value(walk.variables),)
            )
    raise AssertionError(ast.dump(node))


def _assignment(target: ast.expr, node: ast.expr) -> Statement:
    if isinstance(target, ast.Name):
        name, made = target.id, _made(node, target.id)
        return lambda walk: walk.variables.__setitem__(name, made(walk))
    assert isinstance(target, ast.Tuple)
    names = [item.id for item in target.elts if isinstance(item, ast.Name)]
    made = _made(node, *names)

    def unpack(walk: Walk) -> None:
        values = made(walk)
        if not isinstance(values, tuple) or len(values) != len(names):
            raise Refused("language", f"{len(names)} values are needed on the right")
        walk.variables.update(zip(names, values, strict=True))

    return unpack


def _made(node: ast.expr, *names: str) -> Callable[[Walk], Any]:
    """Return a function that evaluates the right side of an assignment."""
    if isinstance(node, ast.Call) and module_name(node.func, "nl") in ALLOCATIONS:
        return _allocation(node, names[0])
    if isinstance(node, ast.Tuple):
        if len(names) != len(node.elts):
            names = tuple(f"{names[0]}[{at}]" for at in range(len(node.elts)))
        items = [_made(item, name) for item, name in zip(node.elts, names, strict=True)]
        return lambda walk: small(tuple([item(walk) for item in items]))
    value = expression(node)
    return lambda walk: value(walk.variables)


def _allocation(node: ast.Call, name: str) -> Callable[[Walk], Tile]:
    shape_node, dtype_node, memory = allocation(node)
    shape_of, dtype_of = expression(shape_node), expression(dtype_node)
    zeros = module_name(node.func, "nl") == "zeros"
    if zeros and SPACES[memory] == "hbm":
        raise KernelError(node.lineno, "nl.zeros is on the chip: fill HBM by nisa.dma_copy")
    memset, line = INSTRUCTIONS["memset"], node.lineno

    def run(walk: Walk) -> Tile:
        shape = shape_of(walk.variables)
        if not isinstance(shape, tuple) or not shape or any(integer(n) < 1 for n in shape):
            raise Refused("language", "a shape is a tuple of positive integers")
        if SPACES[memory] != "hbm" and len(shape) < 2:
            raise Refused("language", "a shape on the chip is (partitions, free, ...)")
        if len(shape) > MOST_DIMS:
            raise Refused("language", f"{len(shape)} dimensions, at most {MOST_DIMS}")
        dtype = dtype_of(walk.variables)
        if dtype not in ITEMSIZE:
            raise Refused("language", f"there is no type {dtype}")
        tile = walk.allocate(name, shape, dtype, memory, line)
        if zeros:
            walk.issue(memset, memset.engines[0], {"dst": tile, "value": 0}, line)
        return tile

    return run


def _instruction(call: ast.Call) -> Statement:
    name = module_name(call.func, "nisa")
    assert name is not None
    it, bound, line = INSTRUCTIONS[name], bind(call, name), call.lineno
    engine = bound.pop("engine", it.engines[0])
    assert isinstance(engine, str)
    fixed: dict[str, Any] = {p.name: p.default for p in it.parameters}
    computed: list[tuple[str, Expression]] = []
    for key, value in bound.items():
        if isinstance(value, str):
            fixed[key] = value
        else:
            computed.append((key, expression(value)))

    def run(walk: Walk) -> None:
        args = fixed.copy()
        for key, value in computed:
            args[key] = value(walk.variables)
        walk.issue(it, engine, args, line)

    return run


def _loop(node: ast.For) -> Statement:
    assert isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call)
    name = node.target.id
    bounds = [expression(item) for item in node.iter.args]
    body = [_statement(item) for item in node.body]

    def run(walk: Walk) -> None:
        values = [integer(bound(walk.variables)) for bound in bounds]
        if len(values) == 3 and values[2] == 0:
            raise Refused("language", "the step of range is zero")
        walk.statements += _length(*values)
        # What is sure to come is counted at once, to refuse it before hours have gone by.
        if walk.statements + _length(*values) * len(body) > MOST_STATEMENTS:
            raise Refused("language", _too_many())
        for value in range(*values):
            walk.variables[name] = value
            for statement in body:
                statement(walk)

    return run


def _length(start: int, stop: int | None = None, step: int = 1) -> int:
    """Return the length of a range; ``len`` knows only those below 2**63."""
    if stop is None:
        start, stop = 0, start
    return max(0, -(-(stop - start) // step))


def _if(node: ast.If) -> Statement:
    test = expression(node.test)
    then = [_statement(item) for item in node.body]
    other = [_statement(item) for item in node.orelse]

    def run(walk: Walk) -> None:
        for statement in then if truth(test(walk.variables)) else other:
            statement(walk)

    return run


def _assertion(node: ast.Assert) -> Statement:
    test = expression(node.test)
    text = ast.unparse(node.test)
    if isinstance(node.msg, ast.Constant):
        text = f"{text}: {node.msg.value!s}"

    def run(walk: Walk) -> None:
        if not truth(test(walk.variables)):
            raise Refused("assertion", f"the kernel asserts {text}")

    return run
