"""Declared tools, tried and timed outside of a run."""
