"""Demonstrations: `rlf demos` writes conversations that solve tasks, and `data.demonstrations` imitates them."""
