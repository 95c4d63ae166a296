"""Kernels for processors, compiled by LLVM.

contraction/, attention/, row_program/, elementwise.py, scan.py, stream/    one for each kind
recurrence.py       the steps of a recurrent layer, each of one of these kinds
symbolic_rows/      any of them, for sizes that are known only when the kernel runs
product.py, row_reduction.py, depthwise/            by TVM's primitives, for plans of one function
costs.py            seconds of memory, instructions and waking threads; the number of threads
loops.py, stage_loops.py            loops, views and vectors as statements of TIR
windows.py, transposition.py        loads of every second element; transposition in registers
empty_axes.py       reductions and scans of axes that may have no elements
for_llvm.py         the last step before LLVM, of every function; it consists of
conditional_division.py             integers divided only where a choice asks for it
vector_math.py                      exp, tanh, erf and others in vectors
"""
