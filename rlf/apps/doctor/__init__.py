"""Whether this machine can run rlf, and contains what models write."""
