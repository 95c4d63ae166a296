"""The kinds of functions that the planner knows, for each machine.

- :mod:`.cpu`, :mod:`.cuda`, :mod:`.trainium`: the problems of each machine.
- :mod:`.problem`: what the search asks of a problem; :mod:`.space`, :mod:`.cost` and :mod:`.nest`:
  its points, and what they cost.
- :mod:`.request`: the function, prepared once; :mod:`.patterns` finds products and reductions of
  rows in it, whatever machine they are for.
- :mod:`.legal_modes`: leaves out ways to fuse that TVM refuses.
"""
