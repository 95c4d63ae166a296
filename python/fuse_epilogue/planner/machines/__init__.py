"""The machines that the planner knows, and their tables of processors and GPUs.

- :mod:`.cpu` and :mod:`.cpu_table`: a processor, and what LLVM does not tell of one.
- :mod:`.gpu` and :mod:`.gpu_table`: a GPU.
- :mod:`.system`: what the operating system tells of a machine.

A NeuronCore is described in :mod:`fuse_epilogue.neuron.machine`.
"""
