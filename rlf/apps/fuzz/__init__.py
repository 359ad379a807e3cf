"""Mutated calls, read by every chat format."""
