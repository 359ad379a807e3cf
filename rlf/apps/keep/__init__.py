"""Runs and models kept: verified, salvaged, exported and imported."""
