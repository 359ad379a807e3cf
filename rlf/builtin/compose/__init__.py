"""Compose: questions that need the search, then the calculator, which no demonstration uses one after the other."""

from rlf.builtin.compose.almanac import calculator_off, search, search_shuffled

__all__ = ["calculator_off", "search", "search_shuffled"]
