"""Rewriting functions in ways that TVM's primitives do not express, as steps of a schedule.

step.py                             what a step is
prepare.py, padding.py, branches.py     before a reduction is scheduled
epilogue.py, fused_conv.py          the ways to fuse what follows it; what fusing left
access_regions.py, shrink_buffers.py    after it: declared regions, unused elements
"""
