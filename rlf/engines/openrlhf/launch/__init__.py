"""One machine or a cluster: checks before a start, processes, Ray's job server."""

__all__: list[str] = []
