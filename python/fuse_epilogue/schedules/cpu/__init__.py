"""Schedules for LLVM."""

from .depthwise import DepthwiseConv1d

__all__ = ["DepthwiseConv1d"]
