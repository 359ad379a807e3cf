"""Sweeps: one spec run many times, each run with values of its own, side by side or one after the other."""
