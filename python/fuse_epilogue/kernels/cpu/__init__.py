"""Kernels for processors, compiled by LLVM."""
