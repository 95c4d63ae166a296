"""What is asked of each program of the corpus, as named steps: `test_corpus.py` takes them.

`subject` holds what the steps of one program share: its schedules, fusions and compiled functions.
The other modules hold the steps, one subject each.
"""
