"""Reports on runs: statistics (pure), readings of the lineage, rich renderables. No SQL, no printing."""

__all__: list[str] = []
