"""Rooms: a vault of rooms with three coloured codes each, of which the question's order of colours names the right one.

A wrong code closes the vault, and only the last room tells: an outcome has to be credited over turns.
"""

from rlf.builtin.rooms.credit import right_codes
from rlf.builtin.rooms.vault import Vault, VaultReversed, VaultShuffled

__all__ = ["Vault", "VaultReversed", "VaultShuffled", "right_codes"]
