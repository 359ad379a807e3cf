"""Reward terms that run what the model produced with a tool, and compare the result."""
