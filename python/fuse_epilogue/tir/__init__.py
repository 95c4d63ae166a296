"""Reading and writing TIR: the one way of doing so in Python."""
