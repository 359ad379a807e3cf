"""The HTML of each place, from the functions that commands use."""
