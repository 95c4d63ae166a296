"""Parts of kernels for functions on streams that every machine has."""
