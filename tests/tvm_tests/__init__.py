"""TVM's own tests, run without the extension and with it: the outcomes must be the same.

``make tvm-tests TVM=PATH`` runs them from a checkout of TVM, each suite in a process of its own.
"""
