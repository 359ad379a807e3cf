"""Attacks on a reward: behaviours without skill, what they earn of the reward of being right, and why."""
