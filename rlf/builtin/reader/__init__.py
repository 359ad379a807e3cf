"""The model behind `builtin:reader`: it reads tool documents that it has not seen, and uses them badly.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.reader.build` makes them again from nothing.
"""
