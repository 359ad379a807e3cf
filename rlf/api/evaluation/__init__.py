"""Trying models outside of training: evaluations of their own in the lineage."""
