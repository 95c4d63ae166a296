"""Executes the CUDA text that TVM generates, on the CPU: no GPU, driver or nvcc is needed.

`build` has TVM generate the kernels' text and its own host code in C, compiles both with g++ behind
headers that say what CUDA's words mean (``include/``), and returns a callable. The threads of a
block run one at a time, each until a barrier or a shuffle, in an order that varies
(``runtime/block.cc``); every load and store is checked (``runtime/memory.cc``). So a run either
gives what the text says, or ends with a `CudaFault` that names what is wrong: an access outside an
array, a race, a barrier that not all threads reach, a result that depends on the order. What an
asynchronous copy copies is there only from the wait for it on (``runtime/copies.cc``). A program
runs in a process of its own.

What is not covered is named by `UnsupportedCuda` before anything runs: inline PTX other than that
of asynchronous copies (with it tensor cores), atomics, clusters, cooperative groups, textures. Not
modelled: the rounding of CUDA's approximate functions (``__expf`` is ``expf`` here), the
contraction of products and sums, and conversions of floats that the integer cannot hold.
"""

from .compiler import missing
from .errors import CudaFault, UnsupportedCuda
from .program import ORDERS, CudaProgram, build, build_all

__all__ = ["ORDERS", "CudaFault", "CudaProgram", "UnsupportedCuda", "build", "build_all", "missing"]
