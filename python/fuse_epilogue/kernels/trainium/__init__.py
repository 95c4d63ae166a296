"""Kernels for AWS Trainium, as schedules that :func:`fuse_epilogue.neuron.emit` takes.

A kind is a rule; the files after it read a function of this kind, and write its blocks:

product.py, read_product.py, product_blocks.py      products of matrices
depthwise.py, depthwise_tiles.py, depthwise_blocks.py, ladder.py    depthwise convolutions
conv2d.py, read_conv2d.py, conv2d_blocks.py         2-D convolutions
windows.py, read_windows.py, window_tiles.py        2-D depthwise convolutions and poolings
read_images.py                                      shared by these two
attention.py, attention_blocks.py                   attention
row_reduction.py, row_blocks.py                     one reduction of rows; elementwise work
row_stages.py, read_row_stages.py, spread_rows.py   several reductions of rows: softmax, norms
movement.py, read_movement.py, movement_blocks.py, transposes.py, gather.py     moving elements
stream_conv.py, stream_tiles.py                     pieces of streams, and sums of int8
stream_update.py                                    states that are updated in place

rule.py, match.py, tiles.py, tile_writer.py, quantised.py       shared by the kinds
hoist_loads.py, outline.py, unfused.py, steps.py    steps that any of them may take
"""
