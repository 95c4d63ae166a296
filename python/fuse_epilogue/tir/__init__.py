"""Reading and writing TIR: the one way of doing so in Python.

walk.py, nest.py            parts of a function; its blocks and their loops
affine.py, unfold.py        indices as sums of variables; several axes in one
build.py, renamed.py        new nodes from old ones; fields with another name in some release
"""
