"""Functions in which guards keep operands from being computed where they are not defined.

``operands`` is the table of operands and guards, ``spec`` a function as plain data, ``draw`` draws
one, ``text`` writes its TVMScript, ``data`` its arrays. ``cuda`` and ``neuron`` schedule functions,
run them on the CPU and compare them with the unscheduled function compiled by TVM for LLVM;
``__main__`` does that thousands of times, and goes on where it was stopped.

Every drawn function is defined as it is written. In TVM 0.27 ``T.if_then_else`` computes one of
its arms; ``T.And`` and ``T.Or`` compute both sides, and ``T.Select`` both arms unless one divides
by something in memory. So those guard nothing else here.
"""
