"""Kernels by machine and kind: each turns what `recognize` has read into a scheduled PrimFunc.

cpu/, cuda/, trainium/      the kernels; stream/ has what those for streams share
scheduled.py, choice.py     what a kernel says of itself; what a rule has chosen, and why
steps.py                    rewritings that a trace can replay
depthwise_rule.py           base of the rules for depthwise convolutions on cpu and cuda
storage.py                  scheduled functions as JSON
"""
