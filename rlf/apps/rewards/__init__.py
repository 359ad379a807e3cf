"""Declared reward terms, tried and scored outside of a run."""
