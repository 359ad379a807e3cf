"""Worlds with a state of their own for each trajectory: kinds, their life, their tools. No sampling here.

What runs worlds is loaded where it is used.
"""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily
from rlf.environments.kind import ENV_KINDS, EnvLimits, EnvSpec

if TYPE_CHECKING:
    from rlf.environments.pool import WorldPool
    from rlf.environments.world import Step, World

__all__ = ["ENV_KINDS", "EnvLimits", "EnvSpec", "Step", "World", "WorldPool"]

__getattr__ = lazily(__name__, {"Step": "world", "World": "world", "WorldPool": "pool"})
