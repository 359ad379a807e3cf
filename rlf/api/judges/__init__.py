"""Judges and models served on this machine."""
