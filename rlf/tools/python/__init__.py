"""The parts of the tool kind `python`: reading a signature, and where calls run (loop, thread or process)."""

__all__: list[str] = []
