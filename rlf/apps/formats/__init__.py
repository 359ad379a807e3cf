"""What a model is shown and how its turns are read."""
