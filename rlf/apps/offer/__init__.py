"""Worlds and tools for the programs of others."""
