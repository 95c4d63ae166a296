"""AWS Trainium: kernels in NKI that can be run, checked and timed without Trainium.

Example
-------
>>> kernel = fuse_epilogue.neuron.load(text)                # doctest: +SKIP
>>> y = kernel(x, weight, bias)                             # doctest: +SKIP
>>> kernel.check("trn1", x, weight, bias)                   # doctest: +SKIP
>>> kernel.predict("trn1", x, weight, bias).latency_ms      # doctest: +SKIP
"""

from .checker import Resources
from .errors import CheckError, KernelError, Violation
from .kernel import Kernel, load

__all__ = ["CheckError", "Kernel", "KernelError", "Resources", "Violation", "load"]
