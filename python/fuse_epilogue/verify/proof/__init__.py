"""Equations that hold for all values: terms in normal form, and how they are proved equal.

- :mod:`.terms`, :mod:`.folded`, :mod:`.log_sums`: terms and their normal forms.
- :mod:`.symbolic`, :mod:`.term_expressions`: terms from programs and from expressions of TVM.
- :mod:`.prover`, :mod:`.tables`: proofs.
- :mod:`.algebra`: monoids, and what distributes over them.
- :mod:`.field`, :mod:`.field_arithmetic`: quotients of polynomials.
- :mod:`.domain`: statements about all points of an iteration domain.
"""
