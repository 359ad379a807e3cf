"""Caches what the first comparisons of the rule `math` need, for processes that are forked from this one."""

from rlf.apps.rules import math_worker

for one, other in math_worker._FIRST:
    math_worker._is_equal(
        math_worker._Formula(math_worker._parse_latex(one), one), math_worker._Formula(math_worker._parse_text(other))
    )
