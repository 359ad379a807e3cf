"""Worlds of specs: listed, tested, attacked, played."""
