"""Reading and writing TIR: the one way of doing so in Python.

walk.py, nest.py            parts of a function; its blocks and their loops
affine.py, unfold.py        indices as sums of variables; several axes in one
expressions.py              casts, zeros, additions to an element
shapes.py, types.py         numbers of elements, and axes that belong together; bits and bytes
build.py, renamed.py        new nodes from old ones; fields with another name in some release
"""
