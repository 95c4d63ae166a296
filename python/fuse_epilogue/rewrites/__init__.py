"""Rewriting functions in ways that TVM's primitives do not express, as steps of a schedule."""
