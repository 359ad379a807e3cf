"""A fictional encyclopedia: worlds, questions about them, and the tools `search` and `calculator`.

The same functions serve a spec (`callable: "rlf.builtin.encyclopedia:search"`) and the making of the tiny model.
"""

from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.encyclopedia.search import load_index, search, search_disabled, search_shuffled

__all__ = ["calculator", "load_index", "search", "search_disabled", "search_shuffled"]
