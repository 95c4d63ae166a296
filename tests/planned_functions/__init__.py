"""Generated functions for the schedules of LLVM: guards, odd sizes, unreadable pages.

``make fuzz-schedules N=5000`` draws functions around a product of matrices, a reduction of rows or
a depthwise convolution, and elementwise ones. Their epilogues and terms have operands that are
defined only where a guard holds. Each is scheduled by the planner, by the rules and by the pass for
whole modules, and compared, bit for bit, with what TVM makes of it as it is, on arrays that end
(and begin) at memory that cannot be read.
"""
