"""Functions to schedule, as a user writes them: one block per step, nothing scheduled.

- :func:`depthwise_conv1d` writes the steps out in TIR.
- :func:`relax_depthwise_conv1d` is the same layer as TVM's Relax makes a function of it.
"""

from .depthwise import depthwise_conv1d
from .relaxed import relax_depthwise_conv1d

__all__ = ["depthwise_conv1d", "relax_depthwise_conv1d"]
