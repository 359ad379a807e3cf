"""The warning of a reward term that has no value for more of a step than is noise.

Values that are missing are never 0, and what they leave out is never a sample at random: those that call a tool, those
that answer at length. Up to a twentieth of a step is left to the counts of the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rlf.rewards.term import Term, Unscorable
from rlf.types.events import Notice, StepFinished
from rlf.types.score import ScoreState

_SHARE = 0.05
"""Share of the trajectories that a term was asked about beyond which its missing values are reported."""


class MissingWatch:
    """Reports each term once, and again after a step in which it was within the share."""

    def __init__(self, terms: Sequence[Term], redact: Callable[[str], str]) -> None:
        """Looks at nothing yet.

        Args:
            redact: strikes secrets out of what a term gives as its reason.
        """
        self._consequences = {term.name: _consequence(term) for term in terms}
        self._redact = redact
        self._reported = set[str]()

    def after_step(self, event: StepFinished) -> list[Notice]:
        """The warnings of one step."""
        asked, missing, reasons = Counter[str](), Counter[str](), dict[str, str]()
        for score in (score for item in event.trajectories for score in item.scores):
            if score.state is ScoreState.GATED:
                continue
            asked[score.term] += 1
            if score.value is None:
                missing[score.term] += 1
                reasons.setdefault(score.term, f"{score.state}: {score.reason}")
        above = {term for term, number in missing.items() if number > _SHARE * asked[term]}
        notices = []
        for term in sorted(above - self._reported):
            words = f"reward term {term!r} has no value for {missing[term]} of {asked[term]} trajectories"
            text = f"step {event.step}: {words}, e.g. {reasons[term]}. {self._consequences.get(term, '')}"
            data = {"step": event.step, "term": term, "missing": missing[term], "asked": asked[term]}
            notices.append(Notice("warning", self._redact(text), data))
        self._reported = above
        return notices


def _consequence(term: Term) -> str:
    if not term.peak_weight:
        return "Its weight is 0, so that rewards are the same without it."
    if term.unscorable is Unscorable.DROP_TERM:
        return "Groups in which others have a reward without it are summed without it (unscorable: drop_term)."
    return "These trajectories are left out of their groups and of the loss (unscorable: drop_trajectory)."
