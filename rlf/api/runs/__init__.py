"""Work with recorded runs."""
