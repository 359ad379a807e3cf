"""Rewards: weighted terms, each visible, where unscorable is never 0."""

from rlf.rewards.term import TERM_KINDS, Term, Verdict

__all__ = ["TERM_KINDS", "Term", "Verdict"]
