"""Worlds of specs: listed, tested, attacked, played; and the kind that is several of them."""
