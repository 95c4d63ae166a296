"""Schedules for AWS Trainium, to be emitted by :func:`fuse_epilogue.neuron.emit`."""

from .depthwise import DepthwiseConv1d
from .matmul import Matmul
from .rows import Elementwise, RowReduce

__all__ = ["DepthwiseConv1d", "Elementwise", "Matmul", "RowReduce"]
