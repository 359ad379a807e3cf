"""Judges: served on this machine, and compared with people."""
