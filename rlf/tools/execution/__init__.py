"""How calls are executed: deadlines, queues, retries, breaker, caches, tapes, and the budget of what comes back."""

__all__: list[str] = []
