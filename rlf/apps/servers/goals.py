"""The states that calls lead to, and whether a world is in one of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any

from rlf.core.plain_json import read_json
from rlf.environments.instances import to_actions
from rlf.environments.world import hash_state
from rlf.types import Task, ToolCall

_DAY_S = 86400


def read_goal(task: Task, column: str | None) -> list[ToolCall]:
    """The calls that lead to a row's goal. Raises TypeError or ValueError for anything else."""
    assert column is not None, "a goal without `after`"
    value = task.columns.get(column)
    actions = to_actions(read_json(value) if isinstance(value, str) else value)
    if actions is None:  # which is not the same as no calls: then doing nothing would be right
        raise ValueError(f"{column}: the row does not say what leads to the goal; write a list of calls")
    calls = [action for action in actions if isinstance(action, ToolCall)]
    if len(calls) < len(actions):
        raise TypeError(f"{column}: got an answer among the calls that lead to the goal; expected calls alone")
    return calls


def equal_but_drawn(state: Any, goals: Sequence[Any]) -> bool:
    """Whether a plain state is the first goal, where only texts and numbers that all goals share are compared,
    and no times of writing."""
    if len(goals) > 1:
        shared = {one for one in set.intersection(*(set(_iterate_values(goal)) for goal in goals)) if not _is_now(one)}
        state, goals = _mark_others(state, shared), [_mark_others(goals[0], shared)]
    return hash_state(state) == hash_state(goals[0])


def _iterate_values(state: Any) -> Iterator[str | float]:
    if isinstance(state, dict):
        yield from state
    if isinstance(state, dict | list):
        for one in state.values() if isinstance(state, dict) else state:
            yield from _iterate_values(one)
    elif isinstance(state, str | int | float) and not isinstance(state, bool):
        yield state


def _is_now(value: Any) -> bool:
    """Whether it may be the time of writing, which two goals that are played within a second share."""
    if isinstance(value, str):
        return len(value) > 10 and value[:10] in (f"{datetime.now(zone):%Y-%m-%d}" for zone in (None, UTC))
    return any(abs(value / unit - time()) < _DAY_S for unit in (1, 1000))


def _mark_others(state: Any, shared: Collection[Any]) -> Any:
    """The state with one mark for all other texts and numbers, mappings as pairs: keys may be among them."""
    if isinstance(state, dict):
        pairs = [[_mark_others(key, shared), _mark_others(one, shared)] for key, one in state.items()]
        return {"": sorted(pairs, key=json.dumps)}
    if isinstance(state, list):
        return [_mark_others(one, shared) for one in state]
    return state if state is None or isinstance(state, bool) or state in shared else {}
