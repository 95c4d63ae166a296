"""Readers of PrimFuncs: what a function computes, as data from which kernels are written.

From whole functions, as Relax makes them:

stages.py, inlining.py                 the function as a list of stages, which all others read
contraction.py, accesses.py            sums of products: matrices, convolutions
attention.py                           two products with a softmax between them
row_program.py, reduction.py           reductions along rows, and how each combines its elements
independent_axes.py, row_dimensions.py axes along which every slice is computed by itself
windowed.py                            the same, with the padding of windows separate
row_stages.py                          the stages that are worth computing one by one
scan.py                                running sums and products
recurrence.py                          layers of recurrent networks
streams.py, stream_elements.py, stream_update.py    states, packed sequences, updates in place
defined.py, integer_ranges.py          what may be computed although a guard excludes it

From the block of one reduction, in a schedule:

product.py, row_reduction.py, depthwise.py          the three kinds that the planner began with
"""
