"""The public functions of `import rlf`: each is a command's, with values in place of text."""
