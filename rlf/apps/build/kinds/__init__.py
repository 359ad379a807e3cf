"""One file for each kind of builder."""
