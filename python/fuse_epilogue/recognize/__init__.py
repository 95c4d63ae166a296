"""Readers of PrimFuncs: what a function computes, as data from which kernels are written."""
