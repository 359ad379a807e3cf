"""What `import rlf` offers."""
