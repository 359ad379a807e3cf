"""A stand-in until the package is there."""
