"""A lineage kept whole: verified and salvaged."""
