"""Keeps README.md, CONTRIBUTING.md and what is written by hand in docs/ true to code and results.

- `reading`: a page's sections, blocks of code and prose.
- `programs`: runs the Python of README.md; test_docs_guides.py does so for docs/.
- `commands`: shell commands and targets of make, files and names that the prose mentions.
- `figures`, `sources`, `measured`: where every figure in the prose comes from.
"""
