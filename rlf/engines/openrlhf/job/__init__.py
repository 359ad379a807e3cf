"""The job folder and what lies in it: paths, launches, rows of data, checkpoints."""

__all__: list[str] = []
