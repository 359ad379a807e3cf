"""What OpenRLHF cannot honour or does otherwise, and what can only be known by looking or by asking its parser."""

__all__: list[str] = []
