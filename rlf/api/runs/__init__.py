"""What is done with recorded runs."""
