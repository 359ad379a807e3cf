"""Code that runs inside OpenRLHF's rollout actors: the agent, and adapters on their way to vLLM."""

__all__: list[str] = []
