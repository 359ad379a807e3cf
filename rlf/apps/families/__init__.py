"""Chat formats of model families whose templates and tokens are their own: one file each, beside its stand-in."""
