"""Conversations with a model, its tools running."""
