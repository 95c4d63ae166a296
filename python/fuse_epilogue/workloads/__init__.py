"""Functions to schedule, as a user writes them: one block per step, nothing scheduled.

- :func:`depthwise_conv1d` convolves each channel with a filter of its own.
- :func:`matmul` multiplies two matrices.
- :func:`row_reduce` sums each row of a matrix, or takes its maximum.
- :func:`elementwise` has no reduction: it scales the rows of a matrix and adds to them.
- :func:`relax_depthwise_conv1d` is a depthwise convolution as TVM's Relax makes a function of it.

The first four are written out in TIR, with a bias and an activation where they are wanted.
"""

from .depthwise import depthwise_conv1d
from .matmul import matmul
from .relaxed import relax_depthwise_conv1d
from .rows import elementwise, row_reduce

__all__ = ["depthwise_conv1d", "elementwise", "matmul", "relax_depthwise_conv1d", "row_reduce"]
