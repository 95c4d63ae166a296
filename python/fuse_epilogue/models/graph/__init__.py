"""Passes on Relax that rewrite a model's graph of operators; `pipeline` puts them in order.

rewriting.py                                    how a pass is written
cleanup.py, pads.py, bools.py, rounding.py      operators that change nothing, or little
written_out.py                                  operators that TVM misreads
degenerate.py                                   divisions by zero, sums of no elements
norms.py                                        variances that lose no digits
affine_maps.py                                  additions and products of constants
folded.py, constant_results.py                  operators on constants, results that are some
channels_last.py, transposes.py                 layouts
reshapes.py, unflattened.py                     products
narrow_products.py, integer_convolutions.py     products and convolutions of integers
transposed_convolutions.py                      transposed convolutions
index_checks.py, index_ranges.py                indices that are outside of their arrays
index_check_function.py                         the function that finds them
scatters.py                                     scatters
attention_groups.py, joined_softmax.py          attention as one function
row_groups.py                                   reductions along the same rows as one function
recurrent.py                                    recurrent layers, for the importers
one_function.py, constant_masks.py              the function of a group, and its masks
"""
