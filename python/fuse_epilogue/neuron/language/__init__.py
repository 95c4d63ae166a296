"""The language of kernels: NKI's own names, and the part of Python that is understood here."""

from .kernel_text import KernelText, parse

__all__ = ["KernelText", "parse"]
