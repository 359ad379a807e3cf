"""Places outside of rlf that runs report to."""
