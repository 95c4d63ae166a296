"""Kernels for CUDA.

depthwise/, stream.py               convolutions; functions on streams
product.py, row_reduction.py        by TVM's primitives; copies.py: into shared memory, unawaited
launch.py, fusing.py                grids of threads; what follows a reduction, as one block
"""
