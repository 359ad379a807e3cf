"""Tool and world files from what others declare."""
