"""Judges the distributions of ``make wheel``: what lies in them, and whether the wheel works.

``make test-wheel`` runs it. `contents` opens the archives, `fresh` installs the wheel into new
virtual environments outside of the source tree and runs `smoke` there.
"""
