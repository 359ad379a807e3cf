"""Worlds and rewards of other projects, as they come."""
