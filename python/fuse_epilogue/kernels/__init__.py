"""Kernels by machine and kind: each turns what `recognize` has read into a scheduled PrimFunc."""
