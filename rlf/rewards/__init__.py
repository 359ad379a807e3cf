"""Rewards: weighted terms, each visible, where unscorable is never 0."""

from rlf.rewards.function import RewardFunction
from rlf.rewards.kinds.rule import RULES, Rule
from rlf.rewards.term import TERM_KINDS, Term, Verdict

__all__ = ["RULES", "TERM_KINDS", "RewardFunction", "Rule", "Term", "Verdict"]
