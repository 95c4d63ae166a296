"""Names that the installed TVM has elsewhere than a checkout of about its age expects them.

A release is rarely a commit of its repository. What is found where the tests look for it stays as
it is, so that nothing changes for a checkout of the very commit. Both sides get the same names.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir


def _visitor(order: str) -> Callable[[Any, Callable[[Any], Any]], None]:
    def visit(node: Any, callback: Callable[[Any], Any]) -> None:  # noqa: ANN401
        def called(found: Any) -> Any:  # noqa: ANN401
            goes_on = callback(found)
            return tvm_ffi.WalkResult.SKIP if order == "pre" and goes_on is False else None

        tvm_ffi.structural_walk(node, [(tvm_ffi.Object, called)], order=order)

    return visit


# Module, name, and what it is.
MOVED: tuple[tuple[str, str, Any], ...] = (
    ("tvm.tirx", "SBlock", s_tir.SBlock),
    ("tvm.tirx", "SBlockRealize", s_tir.SBlockRealize),
    ("tvm.tirx", "TensorIntrin", s_tir.TensorIntrin),
    ("tvm.tirx.function", "TensorIntrin", s_tir.TensorIntrin),
    ("tvm.tirx.analysis", "expr_deep_equal", tvm.ir.prim.expr_deep_equal),
    ("tvm.tirx.stmt_functor", "post_order_visit", _visitor("post")),
    ("tvm.tirx.stmt_functor", "pre_order_visit", _visitor("pre")),
)


def provide() -> None:
    """Put the names where TVM lacks them."""
    for module, name, value in MOVED:
        try:
            place = __import__(module, fromlist=[name])
        except ModuleNotFoundError:
            place = sys.modules[module] = types.ModuleType(module)
        if not hasattr(place, name):
            setattr(place, name, value)
    region = tvm.ir.TensorRegion
    if not hasattr(region, "buffer"):
        region.buffer = property(lambda self: self.source)
