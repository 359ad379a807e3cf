"""The model behind `builtin:prober`: it keeps what a box's answers allow, probes there at random, and mostly gives up.

`checkpoint/` holds the shipped files; `python -m benchmarks.embedded.prober.build` makes them again from nothing.
"""
