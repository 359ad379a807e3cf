"""The same job on this CPU: its environment, a small model, what is changed."""

__all__: list[str] = []
