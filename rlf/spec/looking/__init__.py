"""Checks that need a look: at data, models, tokenizers and code that a spec names."""
