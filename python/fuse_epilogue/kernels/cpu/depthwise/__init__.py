"""Depthwise convolutions on a processor, with what follows them."""
