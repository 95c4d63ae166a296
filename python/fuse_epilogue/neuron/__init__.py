"""AWS Trainium: kernels in NKI that can be run, checked and timed without Trainium.

Example
-------
>>> import numpy as np
>>> from fuse_epilogue import neuron, schedules, workloads
>>> layer = workloads.depthwise_conv1d(1, 128, 64, 3)
>>> kernel = neuron.emit(schedules.apply(layer, "trn1"))
>>> kernel.source.splitlines()[0]
'import nki'
>>> y = kernel(*(np.ones(shape, dtype) for shape, dtype in kernel.inputs.values()))
>>> y.shape
(1, 128, 64)
>>> kernel.check("trn1").instructions["activation"]
2
>>> kernel.predict("trn1").latency_ms > 0
True
"""

from .checker import Resources
from .emit import REFUSALS, EmitError, emit
from .errors import CheckError, KernelError, Violation
from .kernel import Kernel, load
from .language.program import Code

__all__ = [
    "REFUSALS",
    "CheckError",
    "Code",
    "EmitError",
    "Kernel",
    "KernelError",
    "Resources",
    "Violation",
    "emit",
    "load",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
