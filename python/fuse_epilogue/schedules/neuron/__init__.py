"""Schedules for AWS Trainium, to be emitted by :func:`fuse_epilogue.neuron.emit`."""

from .depthwise import DepthwiseConv1d

__all__ = ["DepthwiseConv1d"]
