"""The search of a space for the point that costs least.

- :mod:`.search`: a small space in full, a larger one in part.
- :mod:`.exact`: expensive exact costs, of the most promising points only.
- :mod:`.trials`: times the most promising points, and takes the fastest.
"""
