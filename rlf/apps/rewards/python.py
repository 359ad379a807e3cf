"""`rlf.try_rewards` and `rlf.score`: declared reward terms, outside of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rlf.apps.rewards import scoring
from rlf.apps.rewards.examples import Trial
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Spec, as_command, to_parts
from rlf.runs.declared import load_rewards
from rlf.types import Scored, Trajectory


def try_rewards(spec: Spec = (), *, runs_folder: AnyPath = DEFAULT_RUNS) -> list[Trial]:
    """Tries terms on their `tests:` and on gold, empty, malformed and long trajectories.

    Args:
        spec: a spec, or several and reward files; without any, every file in `reward_specs`.
    """
    with as_command():
        terms = load_rewards(*to_parts(spec, "rewards", ("kind",), runs_folder))
        return asyncio.run(scoring.try_reward_files(terms))


def score(
    trajectories: Sequence[Trajectory | Scored], rewards: Spec, *, step: int = 1, runs_folder: AnyPath = DEFAULT_RUNS
) -> list[Scored]:
    """Scores trajectories with the terms of a spec, or of reward files taken together.

    Args:
        trajectories: of a run, as `run.scored()` gives them, or made by hand.
        step: what schedules and seeds of terms go by.
    """
    plain = [each.trajectory if isinstance(each, Scored) else each for each in trajectories]
    with as_command():
        terms = load_rewards(*to_parts(rewards, "rewards", ("kind",), runs_folder))
        return asyncio.run(scoring.score_files(terms, plain, step=step))
