"""Problems on Trainium: what a point costs is what the latency model predicts for its kernel."""

from .attention import find_one as find_attention
from .conv import find_conv
from .conv2d import find_conv_2d
from .matmul import find_product, find_products
from .row_reduction import find_rows
from .row_stages import find_stages

__all__ = [
    "find_attention",
    "find_conv",
    "find_conv_2d",
    "find_product",
    "find_products",
    "find_rows",
    "find_stages",
]
