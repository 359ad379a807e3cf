"""Worlds with a state of their own for each trajectory: kinds, their life, their tools. No sampling here."""

from rlf.environments.kind import ENV_KINDS, EnvLimits, EnvSpec, Step, World
from rlf.environments.pool import WorldPool

__all__ = ["ENV_KINDS", "EnvLimits", "EnvSpec", "Step", "World", "WorldPool"]
