"""What runs in the environment of the other project."""
