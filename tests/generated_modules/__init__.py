"""Random Relax modules, valid by construction, through the pass and compared with oracles.

``spec`` is a module as a value; ``draw`` draws one from the operators of ``operators`` and
``reductions``. ``relax_module`` builds it for TVM, ``onnx_graph`` for ONNX Runtime, and
``reference`` computes it with NumPy, with a bound on every rounding error. ``child`` lowers,
fuses, compiles and runs a module in a process of its own, ``verdict`` judges the results, and
``chunk`` does so for a range of modules in the resumable runs of ``generated.runner``.
"""
