"""New projects from templates."""
