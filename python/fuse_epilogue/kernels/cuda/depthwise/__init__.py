"""Depthwise convolutions on a GPU, with what follows them."""
