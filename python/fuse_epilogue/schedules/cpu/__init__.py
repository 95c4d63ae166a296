"""Schedules for LLVM."""

from .depthwise import DepthwiseConv1d
from .functions import with_vector_functions

__all__ = ["DepthwiseConv1d", "with_vector_functions"]
