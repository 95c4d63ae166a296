"""The certificates of cascades: reductions that share a loop over blocks of keys.

- :mod:`.checker`: the claims, in turn; :mod:`.claims`: what is claimed of one reduction.
- :mod:`.stages`, :mod:`.step`, :mod:`.loop`: the function before, a step of the loop, the loop.
- :mod:`.laws`, :mod:`.corners`, :mod:`.limits`: why it is right, infinities included.
- :mod:`.evaluated`, :mod:`.defined`: operations that are not defined for all operands.
- :mod:`.order`: what the blocks of the root access.
- :mod:`.folding`: what TVM's simplifier makes of the loop.
- :mod:`.terms`: expressions of cascades as numbers of a field.
"""
