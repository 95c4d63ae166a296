"""Functions executed without the library: over numbers, intervals and unknowns.

- :mod:`.scalars`, :mod:`.functions`, :mod:`.integers`, :mod:`.scalar_ops`: machine arithmetic.
- :mod:`.expressions`, :mod:`.statements`, :mod:`.values`: Python source for TVM's nodes.
- :mod:`.abstract`, :mod:`.intervals`, :mod:`.rounding`: runs over values that are not numbers.
- :mod:`.parameters`, :mod:`.layouts`, :mod:`.data`: what a function takes, and data for it.
- :mod:`.compiled`, :mod:`.isolated`, :mod:`.watched`: the function as TVM compiles it, safely.
"""
