"""Generate, parse, invoke, update: the loop that makes trajectories. No training here."""

from rlf.rollout.collect import collect
from rlf.rollout.loop import Limits, Prefix, Rollout, Setting, play
from rlf.rollout.metrics import rollout_metrics

__all__ = ["Limits", "Prefix", "Rollout", "Setting", "collect", "play", "rollout_metrics"]
