"""Problems on Trainium: what a point costs is what the latency model predicts for its kernel."""

from .attention import find_attention
from .conv2d import find_conv2d
from .depthwise import find_conv
from .product import find_product, find_products
from .row_reduction import find_rows
from .row_stages import find_row_stages
from .windows import find_windows

__all__ = [
    "find_attention",
    "find_conv",
    "find_conv2d",
    "find_product",
    "find_products",
    "find_row_stages",
    "find_rows",
    "find_windows",
]
