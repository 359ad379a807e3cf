"""Benchmarks of others: each is a dataset, a world and rewards, tried by `rlf eval`'s own player."""
