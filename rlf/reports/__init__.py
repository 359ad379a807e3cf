"""What runs come to, for people: statistics (pure), readings of the lineage, rich renderables. No SQL, no printing."""

__all__: list[str] = []
