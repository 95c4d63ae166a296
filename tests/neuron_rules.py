"""Kernels that rules for Trainium make."""

from __future__ import annotations

from typing import Any

from fuse_epilogue.neuron import Kernel, emit
from fuse_epilogue.schedules import Rule

ALL = ("trn1", "trn2", "trn3")


def kernel_by(
    rule: Rule, func: Any, machine: str = "trn2", checked: tuple[str, ...] = ALL
) -> Kernel:
    """Return the kernel that a rule makes for a machine, checked for some."""
    choice = rule.choose(func, machine)
    assert choice.schedule is not None, choice.why
    kernel = emit(choice.schedule)
    for each in checked:
        kernel.check(each)
    return kernel
