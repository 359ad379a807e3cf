"""Models that others serve, as tools, as agents with tools of their own, and as users that a policy talks to."""
