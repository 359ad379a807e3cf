"""Rooms: a vault of rooms with three coloured doors each, of which the question's order of colours names the right one.

A wrong door closes the vault, and only the last room tells: an outcome has to be credited over turns.
"""

from rlf.builtin.games.goal import right_doors
from rlf.builtin.rooms.vault import Vault, VaultReversed, VaultShuffled

__all__ = ["Vault", "VaultReversed", "VaultShuffled", "right_doors"]
