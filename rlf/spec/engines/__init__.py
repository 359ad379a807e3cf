"""Engines by name; each file holds the YAML keys of one `engine.kind`. The engines themselves live in rlf.engines."""
