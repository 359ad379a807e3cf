"""Settings that nothing reads, because of another setting: legal, and without the effect that their writer wants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlf.algo.loss_config import LrSchedule, PolicyLossKind
from rlf.core import Fault
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.reading.nodes import KeyPath


@dataclass(frozen=True, slots=True)
class Unread:
    """Keys of one mapping without effect."""

    parent: KeyPath
    keys: tuple[str, ...]
    why: str
    """The reason, and what to write."""


def find_unread(loaded: LoadedSpec) -> Iterator[Fault]:
    """A warning at each key that is written and not read."""
    spec = loaded.spec
    for unread in (*_unread_by_loss(spec), *_unread_by_training(spec), *_unread_by_rollouts(spec)):
        yield from find_written(loaded, unread)


def find_written(loaded: LoadedSpec, unread: Unread) -> Iterator[Fault]:
    """A warning at each of the keys that the spec says something about."""
    for key in unread.keys:
        path = (*unread.parent, key)
        if (value := loaded.value(path)) is not None:
            yield loaded.fault(path, f"got {value}, which nothing reads: {unread.why}")


def _unread_by_loss(spec: RunSpec) -> Iterator[Unread]:
    loss, parent = spec.train.loss, ("train", "loss")
    gates = ("mode", "gating", "threshold")
    if loss.correction.level == "off":
        why = "level is off, so nothing is corrected. Write `level: token`, or remove it."
        yield Unread((*parent, "correction"), gates, why)
    if loss.sampler_is_old:
        why = f"gspo with level {loss.correction.level} uses the sampler as the old policy and reads "
        fix = "nothing else. Write `level: seq_product` to weigh the loss, or remove it."
        yield Unread((*parent, "correction"), gates, f"{why}{fix}")
    if loss.kind in (PolicyLossKind.SAPO, PolicyLossKind.GPG):
        yield Unread(parent, ("clip_low", "clip_high"), f"{loss.kind} has no clip. Remove it.")
    if loss.kind is not PolicyLossKind.SAPO:
        why = f"it belongs to sapo, not to {loss.kind}. Remove it, or write `kind: sapo`."
        yield Unread(parent, ("tau_pos", "tau_neg"), why)


def _unread_by_training(spec: RunSpec) -> Iterator[Unread]:
    train = spec.train
    if train.kl.sync_every is None:
        why = "the reference never moves. Write e.g. `sync_every: 64`, or remove it."
        yield Unread(("train", "kl"), ("sync_mix",), why)
    if train.kl.coef == 0:
        why = "coef is 0, so that there is no reference. Write e.g. `coef: 0.001`, or remove it."
        yield Unread(("train", "kl"), ("kind", "place"), why)
    if train.lr_schedule is not LrSchedule.COSINE_WITH_MIN_LR:
        why = f"lr_schedule {train.lr_schedule} has no floor. Write `lr_schedule: cosine_with_min_lr`, or remove it."
        yield Unread(("train",), ("min_lr_ratio",), why)


def _unread_by_rollouts(spec: RunSpec) -> Iterator[Unread]:
    if not spec.rollout.has_stragglers:
        why = "an update waits for all of its groups. Write e.g. `oversample: 1.25` or `deadline_s: 60`, or remove it."
        yield Unread(("rollout",), ("late",), why)
    if not spec.tools and spec.env is None:
        why = "there are no tools. Add some, or remove it."
        yield Unread(("rollout",), ("max_tool_calls", "max_tool_concurrency"), why)
