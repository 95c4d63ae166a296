"""Walks a kernel with all loops unrolled: executes it on numpy, or records its instructions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import KernelError, Refused
from ..peers import Peers
from ..trace import Trace
from ..walk import Setting, Spec, Walk
from .functions import invoke
from .kernel_text import KernelText
from .objects import Frame


class Code(str):
    """An argument as the kernel file would write it, such as ``Mode.FAST``.

    Example
    -------
    >>> from fuse_epilogue import neuron
    >>> neuron.Code("Mode.FAST")
    'Mode.FAST'
    """

    __slots__ = ()


class Program:
    """A kernel, ready to be walked.

    - `text`: result of `fuse_epilogue.neuron.language.parse`.
    """

    def __init__(self, text: KernelText) -> None:
        self._text = text

    def record(self, values: Mapping[str, Any], setting: Setting) -> Trace:
        """Return the instructions and buffers for tensors of these shapes and these values."""
        return self._walk(values, {}, setting).trace

    def execute(
        self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray], setting: Setting
    ) -> list[np.ndarray]:
        """Return what the kernel computes."""
        if setting.programs == 1:
            with np.errstate(all="ignore"):
                walk = self._walk(values, arrays, setting, execute=True)
        else:
            peers = Peers(setting.programs)

            def one(program: int) -> Walk:
                own = replace(setting, program=program)
                with np.errstate(all="ignore"):
                    return self._walk(values, arrays, own, execute=True, peers=peers)

            walk = peers.run(one)[0]
        for tile in walk.inputs:
            tile.buffer.give_back()
        return [tile.buffer.array() for tile in walk.outputs]

    def _walk(
        self,
        values: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        setting: Setting,
        execute: bool = False,
        peers: Peers | None = None,
    ) -> Walk:
        text = self._text
        walk = Walk(text.name, execute, setting, peers)
        walk.line = text.line
        try:
            named = {
                name: self._argument(walk, name, value, arrays) for name, value in values.items()
            }
            returned = invoke(walk, text.function, [], named)
            walk.line = _last(text)
            walk.finish(returned)
        except Refused as error:
            raise KernelError(walk.line, error.reason, error.rule) from None
        return walk

    def _argument(self, walk: Walk, name: str, value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return what a parameter is: a tensor, or a value."""
        if isinstance(value, Spec):
            return walk.argument(name, value, arrays.get(name), self._text.line)
        if isinstance(value, tuple):
            return tuple(
                self._argument(walk, f"{name}[{at}]", item, arrays) for at, item in enumerate(value)
            )
        if isinstance(value, Code):
            module = self._text.function.module
            node = ast.parse(str(value), mode="eval").body
            return module.evaluate(node, Frame({}, module, walk))
        return value


def _last(text: KernelText) -> int:
    """Return the line of the last statement."""
    node = text.function.node
    assert isinstance(node, ast.FunctionDef)
    return node.body[-1].lineno
