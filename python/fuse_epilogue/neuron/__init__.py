"""AWS Trainium: kernels in NKI that can be run, checked and timed without Trainium.

Example
-------
>>> kernel = fuse_epilogue.neuron.emit(sch)                 # doctest: +SKIP
>>> print(kernel.source)                                    # doctest: +SKIP
>>> y = kernel(x, weight, bias)                             # doctest: +SKIP
>>> kernel.check("trn1")                                    # doctest: +SKIP
>>> kernel.predict("trn1").latency_ms                       # doctest: +SKIP
"""

from .checker import Resources
from .emit import EmitError, emit
from .errors import CheckError, KernelError, Violation
from .kernel import Kernel, load

__all__ = [
    "CheckError",
    "EmitError",
    "Kernel",
    "KernelError",
    "Resources",
    "Violation",
    "emit",
    "load",
]
