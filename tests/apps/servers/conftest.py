"""Worlds of servers behind the real loop, as all worlds are tested."""

from ...environments.conftest import _own_lists, played, tokenizer

__all__ = ["_own_lists", "played", "tokenizer"]
