"""What can only be known by looking: data, models, tokenizers and code that a spec names."""
