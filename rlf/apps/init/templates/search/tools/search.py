"""The tool of this project: a function with the arguments of tool_specs/search.yaml, which returns what is read."""

from rlf.builtin.encyclopedia import load_index
from rlf.builtin.encyclopedia import search as search_encyclopedia

load_index()  # what takes long belongs here: the first call has the same timeout_s as the others


def search(query: str) -> str:
    """Finds at most two passages, best first, one a line."""
    return search_encyclopedia(query)
