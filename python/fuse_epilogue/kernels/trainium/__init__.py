"""Kernels for AWS Trainium, as schedules that :func:`fuse_epilogue.neuron.emit` takes."""
