"""The reasons for a plan, as text, tables and pictures.

- :mod:`.brief` and :mod:`.explain`: on one screen, and in full.
- :mod:`.binding`, :mod:`.sensitivity`, :mod:`.compare`: limits, other sizes, other points.
- :mod:`.permissions`: options that were not given.
- :mod:`.glossary`: what the words mean.
- :mod:`.roofline`, :mod:`.picture`, :mod:`.svg`: the picture.
"""
