"""Schedules for LLVM."""

from ...kernels.cpu.depthwise.rule import DepthwiseConv1d
from ...kernels.cpu.vector_math import with_vector_functions

__all__ = ["DepthwiseConv1d", "with_vector_functions"]
