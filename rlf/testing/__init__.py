"""Parts for tests of rlf and of what users build on it."""
