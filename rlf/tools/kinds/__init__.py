"""Tool kinds by name; each file holds the YAML keys of one `target.kind` and its runtime."""
