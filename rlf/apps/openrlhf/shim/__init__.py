"""A folder for PYTHONPATH, before everything else: the real, unmodified OpenRLHF runs without a GPU. Not for import."""
