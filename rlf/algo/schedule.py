"""The learning rate over a run, as a pure factor of the peak rate."""

from __future__ import annotations

import math
from enum import StrEnum


class LrSchedule(StrEnum):
    """How the learning rate changes after warm-up; the names are those of transformers."""

    CONSTANT = "constant"
    """Stays at the peak. (transformers calls it `constant_with_warmup` when there is a warm-up.)"""
    LINEAR = "linear"
    """Falls on a line that reaches 0 one step after the last."""
    COSINE_WITH_MIN_LR = "cosine_with_min_lr"
    """Falls on half a cosine towards `min_ratio`; OpenRLHF's default."""


def lr_factor(step: int, total: int, warmup: int, kind: LrSchedule, min_ratio: float = 0.1) -> float:
    """The learning rate of optimiser step `step` (counted from 1) as a fraction of the peak.

        step <= warmup:  step / warmup
        later:           p = (step - 1 - warmup) / (total - warmup)
                         constant 1;  linear 1 - p;  cosine min_ratio + (1 - min_ratio) (1 + cos(pi p)) / 2

    Equals transformers' `get_scheduler` after warm-up. Departure within it: transformers starts at 0 and wastes the
    first step; here step 1 already has 1 / warmup. Steps beyond `total` keep the last factor.

    Args:
        total: optimiser steps of the run.
        warmup: of these, how many rise to the peak; 0 starts at the peak.
        min_ratio: the cosine's floor. The other kinds have none, as in transformers.
    """
    assert step >= 1, f"steps count from 1, got {step}"
    assert warmup >= 0, f"warmup must be 0 or more, got {warmup}"
    if step <= warmup:
        return step / warmup
    progress = (min(step, max(total, warmup + 1)) - 1 - warmup) / max(1, total - warmup)
    match kind:
        case LrSchedule.CONSTANT:
            return 1.0
        case LrSchedule.LINEAR:
            return 1.0 - progress
        case LrSchedule.COSINE_WITH_MIN_LR:
            return min_ratio + (1.0 - min_ratio) * 0.5 * (1.0 + math.cos(math.pi * progress))
