"""What the page shows of explanations, in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from rlf.apps.evaluate.advantage import explain_advantage

TASKS = (explain_advantage,)
