"""Whether a world can be trained in: trials of its life, and policies that should earn nothing."""

from rlf.environments.doctor.examine import ATTACKS, TRIALS, examine_world
from rlf.environments.doctor.playing import Bench, open_bench
from rlf.environments.doctor.verdicts import Page, Ranges, Sign, Verdict

__all__ = ["ATTACKS", "TRIALS", "Bench", "Page", "Ranges", "Sign", "Verdict", "examine_world", "open_bench"]
