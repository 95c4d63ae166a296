"""Kernels for CUDA."""
