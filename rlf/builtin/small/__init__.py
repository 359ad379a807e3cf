"""The small model behind `builtin:small`: it copies words, reads short tool documents, writes simple SQL and Python.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.small.build` makes them again from nothing.
"""
