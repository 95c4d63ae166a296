"""Schedules for CUDA."""

from .depthwise import DepthwiseConv1d

__all__ = ["DepthwiseConv1d"]
