"""What the page shows and does of rewards, each in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.apps.rewards import scoring
from rlf.core.errors import RlfError
from rlf.runs.declared import load_rewards, rescoring_spec

if TYPE_CHECKING:
    from rlf.apps.rewards.examples import Trial
    from rlf.apps.rewards.scoring import Rescoring, RewardTerm
    from rlf.spec.models import RunSpec


def list_rewards(files: Sequence[str]) -> list[RewardTerm]:
    """The terms of reward files and specs."""
    return scoring.describe_terms(load_rewards([Path(file) for file in files]))


def try_rewards(files: Sequence[str]) -> list[Trial]:
    """`rlf rewards test`."""
    return list(asyncio.run(scoring.try_reward_files(load_rewards([Path(file) for file in files]))))


def rescore(
    spec: str | None,
    overrides: Sequence[str],
    weights: Mapping[str, float],
    run: str,
    runs: str,
    phase: str,
    step: int | None,
) -> Rescoring:
    """`rlf rewards score`: a step of a run by the terms of a spec, of its own plan without one.

    Args:
        weights: of terms by name, in place of those that they have.
    """
    saved = scoring.saved_in_run(run, Path(runs), phase=phase, step=step)
    found = _recorded_spec(run, Path(runs)) if spec is None else rescoring_spec([Path(spec)], list(overrides))
    names = [term.name for term in found.rewards]
    if unknown := sorted(set(weights) - set(names)):
        raise RlfError(f"weights: no term {unknown[0]!r} (known: {', '.join(names)}).")
    terms = [term.model_copy(update={"weight": weights.get(term.name, term.weight)}) for term in found.rewards]
    return asyncio.run(scoring.rescore_saved(found.model_copy(update={"rewards": tuple(terms)}), saved))


def _recorded_spec(run: str, runs_folder: Path) -> RunSpec:
    """The spec that a run was made with."""
    from rlf.runs.place import Places, open_reader
    from rlf.runs.restore import restore_plan, take_environment

    with open_reader(runs_folder) as reader:
        record = reader.get_run(run).record
        places = Places.of(record, reader.store)
    take_environment(record, places)
    return restore_plan(record, places).spec


TASKS = (list_rewards, try_rewards, rescore)
