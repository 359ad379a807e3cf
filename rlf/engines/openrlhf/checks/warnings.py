"""Warnings of legal settings that OpenRLHF treats otherwise than a reader may expect."""

from __future__ import annotations

from collections.abc import Iterator

from rlf.algo.loss_config import CorrectionLevel
from rlf.core import Fault
from rlf.engines.openrlhf.checks.cluster import find_cluster_warnings
from rlf.engines.openrlhf.settings import Mode, OpenRlhfSettings
from rlf.spec import LoadedSpec

SHORT_WARMUP = 10
"""Updates of a warm-up below which its empty first one counts."""


def find_openrlhf_warnings(loaded: LoadedSpec, engine: OpenRlhfSettings) -> Iterator[Fault]:
    """Warnings of what OpenRLHF does differently from the local engine, within the spec."""
    spec, train = loaded.spec, loaded.spec.train
    if 1 < train.warmup_steps < SHORT_WARMUP:
        message = f"got {train.warmup_steps}; OpenRLHF's warm-up starts at rate 0, so that the first update changes "
        fix = f"Write 0, or {SHORT_WARMUP} or more."
        yield loaded.fault(("train", "warmup_steps"), f"{message}nothing and each later one is a step behind. {fix}")
    if train.weight_decay > 0:
        message = f"got {train.weight_decay:g}; OpenRLHF does not decay biases and norms, the local engine does. "
        yield loaded.fault(("train", "weight_decay"), f"{message}Write 0 for the same result on both.")
    if train.dynamic_filtering is not None:
        message = (
            f"OpenRLHF replaces dropped groups from the {train.steps * train.prompts_per_step} questions of all steps, "
            f"so it makes fewer than {train.steps} updates. Raise train.steps by the share that is dropped."
        )
        yield loaded.fault(("train", "dynamic_filtering"), message)
    if engine.mode is not Mode.SYNC and train.loss.correction.level is CorrectionLevel.OFF:
        message = (
            f"got {engine.mode} without train.loss.correction; trajectories come from older weights than the update "
        )
        yield loaded.fault(("engine", "mode"), f"{message}takes them for. Write e.g. `correction: {{level: token}}`.")
    if engine.mode is not Mode.SYNC and spec.data.eval is not None:
        message = f"got {engine.mode}; sampling ends before the last update, so that update is not evaluated. "
        yield loaded.fault(("engine", "mode"), f"{message}Write mode: sync to evaluate it.")
    if engine.ray_address is not None:
        yield from find_cluster_warnings(loaded, engine.ray_address)
