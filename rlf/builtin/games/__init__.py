"""The model behind `builtin:games`: half a million parameters that play rooms, bisect and compose, badly.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.games.build` makes them again from nothing.
"""
