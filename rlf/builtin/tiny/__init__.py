"""The tiny model behind `builtin:tiny`: a Qwen3 of half a million parameters that can search, but seldom does.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.tiny.build` makes them again from nothing.
"""
