"""What `import rlf` offers: each function is a command's, with values in place of text."""
