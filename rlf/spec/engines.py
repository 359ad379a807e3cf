"""Engines as a spec knows them: the keys under `engine`, and what of the rest of a spec each of them cannot do.

What a plan asks of an engine is in `rlf.plan.estimate`, what a run asks in `rlf.engines.engine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from rlf.core import Registry
from rlf.core.kinds import Kind


class Feature(StrEnum):
    """A feature that a spec or a command may ask for and not every engine has."""

    ADAPTERS = "adapters"
    """`model.lora`."""
    IMAGES = "images"
    """`rollout.max_images`."""
    TURN_REWARDS = "turn_rewards"
    """Reward terms with `stage: turn`: an advantage for each turn."""
    FORKED_HISTORY = "forked_history"
    """`chat.history: fork` and `rollout.context`: several sequences of one trajectory."""
    OBSERVATIONS_IN_LOSS = "observations_in_loss"
    """`train.observations_in_loss`."""
    AGENT_BREAKS = "agent_breaks"
    """`on_break: sample` of `rollout.agent`: trajectories of several contexts."""
    DEMONSTRATIONS = "demonstrations"
    """`data.demonstrations.steps`: steps that imitate conversations before others of the same run, which sample."""
    EVALUATED_IMITATION = "evaluated_imitation"
    """`data.eval` of a run whose every step imitates."""
    PREFIX_ROWS = "prefix_rows"
    """`rollout.tree`, `rollout.prefix_rows`: groups that continue a trajectory of the same step."""
    SKIPPED_OBSERVATIONS = "skipped_observations"
    """`observations: skip` of gae."""
    FILTER_ROUNDS = "filter_rounds"
    """Further rounds of dynamic filtering in the same step; without it later steps have fewer questions."""
    POOLS = "pools"
    """`train.sampler: pools`: tasks by the success so far."""
    LOGICAL_SCHEDULE = "logical_schedule"
    """`rollout.schedule: logical`: a seed gives the same tokens again."""
    STRAGGLERS = "stragglers"
    """`rollout.oversample` and `rollout.deadline_s`: an update that starts while groups are under way."""
    STALENESS = "staleness"
    """`train.staleness`: rollouts beside the update."""
    ONE_SCORER = "one_scorer"
    """One process scores all trajectories: it can compare them, count over them and serve a judge."""
    EVALUATION_BUDGET = "evaluation_budget"
    """`limits.max_usd_per_evaluation`."""
    ROLLBACK = "rollback"
    """`action: rollback` of the guards of `health`."""
    RECORDED_CALLS = "recorded_calls"
    """`rlf run --record` and `--replay`."""
    BRANCHES = "branches"
    """`rlf runs fork`: a run from a checkpoint of another run."""
    CHECKPOINT_MODELS = "checkpoint_models"
    """`rlf export --step`: the model of any checkpoint."""
    REHEARSAL = "rehearsal"
    """`rlf rehearse`: the same run on this CPU, where it would run elsewhere."""


class EngineSpec(Kind, allow_inf_nan=False):
    """Which engine trains, and the keys that only it understands."""

    chosen_by: ClassVar[str] = "kind"
    TITLE: ClassVar[str] = "this engine"
    """Its name in messages."""
    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = ()
    """Keys that cannot change a run's results: they are no part of the plan's hash."""
    ESTIMATORS: ClassVar[tuple[str, ...] | None] = None
    """The kinds of `train.algorithm` that it has; None: all."""
    LOSSES: ClassVar[tuple[str, ...] | None] = None
    """The kinds of `train.loss` that it has; None: all."""
    LACKS: ClassVar[Mapping[Feature, str]] = {}
    """Features that it does not have, each with the reason as the message gives it."""

    kind: str
    """The engine's name."""


ENGINES: Registry[EngineSpec] = Registry("engine", "rlf.engines", EngineSpec, folders=True)
"""Engines by name: folders of `rlf.engines`, each with one class."""
_DEFAULT = "local"


def default_engine() -> EngineSpec:
    """The engine of a spec that names none."""
    return ENGINES.get(_DEFAULT)(kind=_DEFAULT)


def engines_with(feature: Feature) -> list[str]:
    """The engines that have a feature."""
    return [name for name in ENGINES.names() if feature not in ENGINES.get(name).LACKS]
