"""Records of what agents did, line by line, and their way from nodes without a shared disk."""

__all__: list[str] = []
