"""Small changes of right answers, and whether the checks notice each of them.

`arithmetic`, `calls`, `constants`, `indices`, `statements` and `variables` say what is changed; `places`
makes a change and names it, `made` gathers all changes of a cell; `judged` judges each in a child process of
`children`, `record` remembers what was judged, `run` prints the table.

The changes are made here, on Python's own syntax trees, and not by cosmic-ray or mutmut: those write a
changed file and start a test command for each mutant (seconds, not milliseconds), bring a dozen packages, and
know nothing of axes, tensors, keyword arguments or of regions of a cell, so nearly all operators would be
ours all the same.
"""
