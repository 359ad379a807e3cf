"""Agents of the user's own as players of trajectories: each has an address and a key at which the policy answers.

- `server`: the addresses, and the player that the rollout loop's place is given to.
- `session`: one trajectory: what is asked becomes tokens, is sampled, and is kept before it is answered.
- `calls`: how the calls of a trajectory hang together, and the rows that they become.
- `programs`: the user's program, started for a trajectory and ended with it.
"""

from rlf.apps.serve.agents.server import AgentServer

__all__ = ["AgentServer"]
