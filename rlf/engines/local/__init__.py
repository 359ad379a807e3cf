"""The embedded engine: model, sampler, update and checkpoints on torch and transformers in one process."""
