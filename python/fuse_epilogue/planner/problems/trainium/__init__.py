"""Problems on Trainium: what a point costs is what the latency model predicts for its kernel."""

from .conv import find_conv
from .matmul import find_product, find_products
from .row_reduction import find_rows

__all__ = ["find_conv", "find_product", "find_products", "find_rows"]
