"""Worlds as files: built, and looked at."""
