"""Functions to schedule, as a user writes them: one block per step, nothing scheduled.

- :func:`depthwise_conv1d` convolves each channel with a filter of its own; a stream of columns can
  come in pieces, with a state between them, or several streams in one row.
- :func:`depthwise_conv1d_update` computes the next columns of streams and updates their states.
- :func:`depthwise_conv1d_backward` computes the gradients of a depthwise convolution.
- :func:`matmul` multiplies two matrices.
- :func:`row_reduce` sums each row of a matrix, or takes its maximum.
- :func:`elementwise` has no reduction: it scales the rows of a matrix and adds to them.
- :func:`relax_depthwise_conv1d` is a depthwise convolution as TVM's Relax makes a function of it.

All but the last are written out in TIR, with a bias and an activation where they are wanted.
"""

from .depthwise import depthwise_conv1d
from .depthwise_backward import depthwise_conv1d_backward
from .depthwise_update import depthwise_conv1d_update
from .matmul import matmul
from .relaxed import relax_depthwise_conv1d
from .rows import elementwise, row_reduce

__all__ = [
    "depthwise_conv1d",
    "depthwise_conv1d_backward",
    "depthwise_conv1d_update",
    "elementwise",
    "matmul",
    "relax_depthwise_conv1d",
    "row_reduce",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
