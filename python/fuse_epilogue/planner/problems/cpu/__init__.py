"""The kinds of functions that the planner knows, for processors.

- :mod:`.product`: products of matrices.
- :mod:`.row_reduction`: rows of a matrix reduced to a number each.
- :mod:`.depthwise`: depthwise convolutions.
"""

from .depthwise import find_conv
from .product import find_product
from .row_reduction import find_rows

__all__ = ["find_conv", "find_product", "find_rows"]
