"""Nodes of ONNX models that are rewritten before TVM imports them.

importer.py         TVM's importer, with the nodes that are emitted here:
recurrent.py        recurrent layers, as functions of all steps
inlined.py          operators that ONNX defines by others, and functions of a model
nodes.py            nodes that TVM's importer does not know, or takes for others
operators.py        operators that TVM's importer does not know or reads wrongly
sizes.py            arithmetic of sizes that are constant
open_shapes.py      operators on sizes that have names
guards.py           the guard that exporters write around the softmax of attention
quantised.py        operators of quantised numbers, as arithmetic of integers,
integers.py         which scales, shifts and rounds them
dequantised.py      products and convolutions of dequantised numbers, as those of their integers
graph.py            what all of these know of a model, and how they write nodes
"""
