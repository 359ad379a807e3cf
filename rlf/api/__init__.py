"""The composition root: the only door for the command line, the page and tests of whole runs."""
