"""From a plan to a job: options that OpenRLHF's own parser takes, files, and memory estimated."""

__all__: list[str] = []
