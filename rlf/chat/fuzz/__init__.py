"""Fuzzing of a chat format's parser: mutated calls and their outcomes. Nothing is run."""
