"""Packages for Trainium: a model as kernels in NKI, with what runs on the processor between them.

package.py       the package: called, saved, reported
compiling.py     a package made of a module
graph.py         a model as calls of functions on named arrays
shapes.py        operators in the shapes that kernels have
functions.py     the kernels of each function
saved.py         packages in folders
glue.py          the text that calls the kernels from torch-xla and JAX
"""
