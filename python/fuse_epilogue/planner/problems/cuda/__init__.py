"""The kinds of functions that the planner knows, for GPUs.

- :mod:`.product`: products of matrices.
- :mod:`.row_reduction`: rows of a matrix reduced to a number each.
- :mod:`.depthwise`: depthwise convolutions.
- :mod:`.kernel`: what a kernel takes of a GPU, and how long.

Costs are predicted, and were not measured on a GPU.
"""

from .depthwise import find_conv
from .product import find_product
from .row_reduction import find_rows

__all__ = ["find_conv", "find_product", "find_rows"]
