"""Rewards: weighted terms, each visible, where unscorable is never 0. What scores is loaded where it is used."""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily
from rlf.rewards.facts import Example, TrajectoryFacts
from rlf.rewards.kinds.rule import RULES, Rule
from rlf.rewards.term import TERM_KINDS, Gate, RewardContext, Scorer, Scoring, Stage, Term, Unscorable, Verdict

if TYPE_CHECKING:
    from rlf.rewards.function import RewardFunction

__all__ = [
    "RULES",
    "TERM_KINDS",
    "Example",
    "Gate",
    "RewardContext",
    "RewardFunction",
    "Rule",
    "Scorer",
    "Scoring",
    "Stage",
    "Term",
    "TrajectoryFacts",
    "Unscorable",
    "Verdict",
]

__getattr__ = lazily(__name__, {"RewardFunction": "function"})
