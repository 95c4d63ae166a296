"""Schedules for AWS Trainium, to be emitted by :func:`fuse_epilogue.neuron.emit`."""

from ...kernels.trainium.attention import Attention
from ...kernels.trainium.conv2d import Conv2d
from ...kernels.trainium.depthwise import DepthwiseConv1d
from ...kernels.trainium.movement import Movement
from ...kernels.trainium.product import Matmul
from ...kernels.trainium.row_reduction import Elementwise, RowReduce
from ...kernels.trainium.row_stages import RowStages
from ...kernels.trainium.stream_conv import StreamConv
from ...kernels.trainium.stream_update import StreamUpdate
from ...kernels.trainium.transposes import Transpose
from ...kernels.trainium.windows import Windows2d

__all__ = [
    "Attention",
    "Conv2d",
    "DepthwiseConv1d",
    "Elementwise",
    "Matmul",
    "Movement",
    "RowReduce",
    "RowStages",
    "StreamConv",
    "StreamUpdate",
    "Transpose",
    "Windows2d",
]
