"""Schedules for CUDA."""

from ...kernels.cuda.depthwise.rule import DepthwiseConv1d

__all__ = ["DepthwiseConv1d"]
