"""Schedules for LLVM."""

from ...kernels.cpu.vector_math import with_vector_functions
from .depthwise import DepthwiseConv1d

__all__ = ["DepthwiseConv1d", "with_vector_functions"]
