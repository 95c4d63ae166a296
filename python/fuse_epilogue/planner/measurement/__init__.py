"""Times of points on machines, and the profiles that are fitted to them.

- :mod:`.measure`: compiles a schedule and times it here; :mod:`.remote`: on another machine.
- :mod:`.measurement_log`: keeps times in a file, so that an interrupted calibration resumes.
- :mod:`.calibrate`: fits the weights of the cost.
- :mod:`.profile`: the result, as a file; ``profiles`` holds those that come with this package.
"""
