"""Chat formats beside `hermes`: of model families, and of bare text. One file each, beside its stand-in."""
