"""Generate, parse, invoke, update: the loop that makes trajectories. No training here."""

from rlf.rollout.collect import collect, rollout_metrics
from rlf.rollout.loop import Setting, play
from rlf.rollout.rollout import Prefix, Rollout, RolloutLimits

__all__ = ["Prefix", "Rollout", "RolloutLimits", "Setting", "collect", "play", "rollout_metrics"]
