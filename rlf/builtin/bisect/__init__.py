"""Bisect: a box hides a number, and a probe says whether it is higher or lower; six probes are enough for 63 numbers.

A policy that probes at random finds one box in twenty: how to probe has to be explored.
"""

from rlf.builtin.bisect.box import Box, BoxFour, BoxLying, BoxWide
from rlf.builtin.bisect.credit import halvings

__all__ = ["Box", "BoxFour", "BoxLying", "BoxWide", "halvings"]
