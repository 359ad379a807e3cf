"""Kinds of worlds, one file each."""
