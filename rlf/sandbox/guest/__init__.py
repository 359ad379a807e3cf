"""Code that runs inside the sandbox: the standard library alone, since nothing else of rlf is there."""
