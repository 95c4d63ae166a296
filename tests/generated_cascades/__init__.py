"""Generated programs with cascades.

``spec`` says what a program is, as plain data, and draws one; ``expressions`` has what its terms
are, for TVM and for numbers with a bound of their error; ``build`` makes the function, ``formula``
what it computes; ``chunk`` fuses it, runs both functions and judges; ``__main__`` does that
thousands of times, and goes on where it was stopped.
"""
