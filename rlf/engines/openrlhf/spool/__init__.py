"""What agents did, line by line, and its way from nodes without a shared disk."""

__all__: list[str] = []
