"""Generated programs: what the primitive does with programs that nobody wrote down.

``spec`` is a program as a value; ``layouts`` and ``expressions`` are what it is made of,
``strategy`` and ``values`` draw one, ``build`` and ``steps`` make TIR of it. ``truth`` says from
the specification alone what is right, ``verdict`` calls the primitive and judges, ``shrink`` makes
a counterexample small, ``runner`` does it all a hundred thousand times.
"""
