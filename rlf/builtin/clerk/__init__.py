"""The model behind `builtin:clerk`: half a million parameters that can serve in the shop, but seldom do it right.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.clerk.build` makes them again from nothing.
"""
