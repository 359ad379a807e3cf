"""What Ray keeps for itself, as far as its start goes."""
