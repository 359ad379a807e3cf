"""The warning of what takes more of a step than is noise: a reward term without values, a tool or a world that fails.

Also of a tool that fails in every call of a run with one and the same text.

Values that are missing are never 0, and what they leave out is never a sample at random: those that call a tool, those
that answer at length. Up to a twentieth of a step is left to the counts of the metrics.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlf.rewards.term import Term
from rlf.training.counting import choose_tries, find_cause, term_name
from rlf.types.events import Notice, StepFinished
from rlf.types.score import Scored, ScoreState
from rlf.types.tool import Outcome
from rlf.types.trajectory import StopReason

_MIN_OTHERS = 3
"""Different arguments among these calls."""
_MIN_CALLS = 16
"""Calls of a tool that all fail alike before it is reported."""
_SHARE = 0.05
"""Share of the trajectories that a term was asked about, or of all, beyond which missing values are reported."""


@dataclass(slots=True)
class _Loss:
    """The trajectories of a step from which one cause takes a value."""

    effect: str
    consequence: str
    asked: Counter[str | None] = field(default_factory=Counter)
    """Trajectories that it could take one from, by kind of task."""
    missing: Counter[str | None] = field(default_factory=Counter)
    reason: str = ""
    """That of the first."""

    def note(self, kind: str | None, reason: str | None) -> None:
        """Counts a trajectory. Args: reason: why there is no value; None where there is one."""
        self.asked[kind] += 1
        if reason is not None:
            self.missing[kind] += 1
            self.reason = self.reason or reason


@dataclass(slots=True)
class _Failing:
    """The calls of a tool that has only failed, always with one text."""

    text: str
    number: int = 0
    arguments: set[str] = field(default_factory=set)


class MissingWatch:
    """Reports each cause once, and again after a step in which it was within the share."""

    def __init__(self, terms: Sequence[Term], redact: Callable[[str], str]) -> None:
        """Looks at nothing yet.

        Args:
            redact: strikes secrets out of what is given as a reason.
        """
        self._consequences = {term.name: _consequence(term) for term in terms}
        self._redact = redact
        self._reported = set[str]()
        self._failing = set[str]()
        """Tools that were reported to fail in every call."""
        self._calls: dict[str, _Failing | None] = {}
        """Of each tool what failed alike so far; None: it has done something else."""

    def after_step(self, event: StepFinished) -> list[Notice]:
        """The warnings of one step."""
        rollouts = choose_tries(event.trajectories)
        losses = self._of_terms(rollouts) | _of_services(rollouts)
        above = {name for name, loss in losses.items() if loss.missing.total() > _SHARE * loss.asked.total()}
        notices = []
        for name in sorted(above - self._reported):
            loss = losses[name]
            number, asked = loss.missing.total(), loss.asked.total()
            words = f"step {event.step}: {name} {loss.effect} {number} of {asked} trajectories{_by_kind(loss)}"
            text = f"{words}, e.g. {loss.reason}. {loss.consequence}"
            data = {"step": event.step, "cause": name, "missing": number, "asked": asked}
            notices.append(Notice("warning", self._redact(text), data))
        self._reported = above
        return [*notices, *self._of_tools(event)]

    def _of_tools(self, event: StepFinished) -> list[Notice]:
        """Tools that fail in every call with one and the same text: no policy is at fault there."""
        for record in (record for item in event.trajectories for record in item.trajectory.played_calls):
            name, result = record.call.name, record.result
            failing = self._calls.setdefault(name, _Failing(result.text))
            if failing is None or result.outcome is not Outcome.TOOL_ERROR or result.text != failing.text:
                self._calls[name] = None
                continue
            failing.number += 1
            failing.arguments.add(json.dumps(dict(record.call.arguments), sort_keys=True, default=str)[:1000])
        notices = []
        for name, failing in self._calls.items():
            # One call that is repeated says nothing of the others, but for a tool without arguments.
            is_proven = failing is not None and (len(failing.arguments) >= _MIN_OTHERS or failing.arguments == {"{}"})
            if failing is not None and is_proven and failing.number >= _MIN_CALLS and name not in self._failing:
                self._failing.add(name)
                failed = f"failed in each of {failing.number} calls with one text, {failing.text:.200}"
                words = f"step {event.step}: tool {name} {failed}"
                cure = "It is the tool that fails, not the policy; `rlf env prove` and `rlf tools test` try it"
                data = {"step": event.step, "tool": name, "calls": failing.number}
                notices.append(Notice("warning", self._redact(f"{words}. {cure}."), data))
        return notices

    def _of_terms(self, rollouts: Sequence[Scored]) -> dict[str, _Loss]:
        losses: dict[str, _Loss] = {}
        for item in rollouts:
            for score in (score for score in item.scores if score.state is not ScoreState.GATED):
                loss = _Loss("has no value for", self._consequences.get(score.term, ""))
                reason = f"{score.state}: {score.reason}" if score.value is None else None
                losses.setdefault(term_name(score.term), loss).note(item.trajectory.task.kind, reason)
        return losses


def _of_services(rollouts: Sequence[Scored]) -> dict[str, _Loss]:
    """What broke trajectories before a term was asked, each against all trajectories of the step."""
    causes = [find_cause(item) if item.trajectory.stop is StopReason.INFRA_FAILURE else None for item in rollouts]
    losses = defaultdict[str, _Loss](lambda: _Loss("broke", "They are left out of their groups and of the loss."))
    for name in {cause.name for cause in causes if cause is not None}:
        for item, cause in zip(rollouts, causes, strict=True):
            is_broken = cause is not None and cause.name == name
            losses[name].note(item.trajectory.task.kind, cause.error if cause is not None and is_broken else None)
    return losses


def _by_kind(loss: _Loss) -> str:
    """` (two_hop 30 of 32, one_hop 2 of 96)`, the kinds that are hit; empty where all tasks are of one."""
    parts = [f"{kind} {number} of {loss.asked[kind]}" for kind, number in loss.missing.most_common()]
    return f" ({', '.join(parts)})" if len(loss.asked) > 1 else ""


def _consequence(term: Term) -> str:
    if not term.peak_weight:
        return "Its weight is 0, so that rewards are the same without it."
    if term.is_droppable:
        return "Groups in which others have a reward without it are summed without it (unscorable: drop_term)."
    return "These trajectories are left out of their groups and of the loss (unscorable: drop_trajectory)."
