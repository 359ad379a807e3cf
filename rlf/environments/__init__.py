"""Worlds with a state of their own for each trajectory: kinds, their life, their tools. No sampling here."""

from rlf.environments.kind import ENV_KINDS, EnvLimits, EnvSpec
from rlf.environments.pool import WorldPool
from rlf.environments.world import Step, World

__all__ = ["ENV_KINDS", "EnvLimits", "EnvSpec", "Step", "World", "WorldPool"]
