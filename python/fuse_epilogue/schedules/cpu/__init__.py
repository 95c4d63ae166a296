"""Schedules for LLVM."""

from ...kernels.cpu.depthwise.rule import DepthwiseConv1d
from ...kernels.cpu.for_llvm import for_llvm

__all__ = ["DepthwiseConv1d", "for_llvm"]
