"""The model behind `builtin:guesser`: it plays TextArena's number guessing, and forgets most hints.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.guesser.build` makes them again where TextArena is
installed.
"""
