"""Imports torch's exported programs: operators that TVM imports otherwise, or not at all.

importer.py                      from an exported program to Relax, with every result compared
operators.py                     which operators are imported otherwise
decompositions.py                written in operators that TVM imports as torch computes them:
attention.py, encoder.py         those of attention, of a transformer's encoder layer,
norms.py                         of normalisations,
special_functions.py             of functions such as the inverse of erf,
scans.py                         of running maxima, minima and sums,
places.py                        of searches, and of reductions by an index
converters.py                    written in Relax:
bags.py                          those that reduce bags of rows,
indexing.py, slices.py           those that read and write at indices and in ranges,
resampling.py                    that resize images,
open_resampling.py               those of a size that may differ from call to call,
recurrent.py                     recurrent layers, as functions of all steps
mixed_types.py                   operands of several types, with the conversions written out
constants.py                     arguments and results that are numbers, tensors that are constants
sizes.py                         names of sizes
symbols.py                       sizes of torch in Relax, and the importer that knows them
"""
