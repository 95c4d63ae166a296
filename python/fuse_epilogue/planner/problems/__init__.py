"""The kinds of functions that the planner knows, for each machine.

- :mod:`.product`: products of matrices, on a processor.
- :mod:`.row_reduction`: rows of a matrix reduced to a number each, on a processor.
- :mod:`.conv`: depthwise convolutions, on a processor.
- :mod:`.cuda`: the same three on a GPU.
- :mod:`.patterns` finds the first two in a function, whatever machine it is for.
"""
