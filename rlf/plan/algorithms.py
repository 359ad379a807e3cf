"""The keys that an estimator, a loss and a reference need elsewhere in a spec, on any engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlf.algo.loss_config import PolicyLossKind
from rlf.core import Fault
from rlf.spec import LoadedSpec
from rlf.spec.engines import Feature
from rlf.spec.kinds import is_gae
from rlf.spec.load import reads
from rlf.spec.models import TaskSampler


@reads("train.algorithm", "rollout.num_generations")
def _best_of_k_has_subsets(loaded: LoadedSpec) -> Iterator[Fault]:
    size, num = loaded.spec.train.algorithm.subset_size, loaded.spec.rollout.num_generations
    if size >= num > 1:
        message = f"got {size} of {num} generations; there is only one subset of k, so every advantage is "
        yield loaded.fault(("train", "algorithm", "k"), f"{message}0. Write at most {num - 1}, or more generations.")


@reads("train.algorithm", "train.steps", "data.demonstrations")
def _algorithm_has_steps(loaded: LoadedSpec) -> Iterator[Fault]:
    shown, train = loaded.spec.data.demonstrations, loaded.spec.train
    name = loaded.value(("train", "algorithm", "kind"))
    if shown is None or name == "supervised":
        return
    if shown.steps is None:
        message = (
            f"every step imitates demonstrations, so that {name} has none. Write `steps: N` for the first ones, or "
        )
        yield loaded.fault(("data", "demonstrations"), f"{message}train.algorithm: supervised.")
    elif shown.steps >= train.steps:
        message = (
            f"got {shown.steps} of {train.steps} steps, so that {name} has none. Write fewer, or more train.steps."
        )
        yield loaded.fault(("data", "demonstrations", "steps"), message)


@reads("train.algorithm", "rollout", "train.sampler")
def _prefix_rows_and_pools_are_alone(loaded: LoadedSpec) -> Iterator[Fault]:
    rollout, has_pools = loaded.spec.rollout, loaded.spec.train.sampler is TaskSampler.POOLS
    for path, is_set in (
        (("rollout", "prefix_rows"), rollout.prefix_rows),
        (("rollout", "tree"), rollout.tree is not None),
        (("train", "sampler"), has_pools),
    ):
        if is_set and rollout.has_stragglers:
            yield loaded.fault(path, "got this with oversample or deadline_s, whose groups may be late. Remove one.")
    if not rollout.prefix_rows:
        return
    if loaded.spec.train.algorithm.needs_greedy:
        message = (
            "got prefix rows; the greedy rollout of this algorithm plays a whole trajectory. Write another algorithm."
        )
        yield loaded.fault(("train", "algorithm"), message)


@reads("rollout", "rewards[]")
def _trees_can_grow(loaded: LoadedSpec) -> Iterator[Fault]:
    rollout, path = loaded.spec.rollout, ("rollout", "tree")
    if (tree := rollout.tree) is None:
        return
    if rollout.prefix_rows:
        yield loaded.fault(path, "got a tree with prefix_rows, which trains on single turns. Remove one.")
    if rollout.max_turns == 1:
        yield loaded.fault(path, "got a tree with max_turns: 1, so that there is no later turn. Remove it.")
    left, share = rollout.num_generations - tree.roots, tree.roots * tree.rounds
    if left <= 0 or left % share:
        enough = tree.roots + share * max(1, round(left / share))
        message = (
            f"got {tree.roots} roots and {tree.rounds} rounds with num_generations: {rollout.num_generations}; each "
            f"round must add equally many to each tree. Write e.g. num_generations: {enough}."
        )
        yield loaded.fault(path, message)
    for position, term in enumerate(loaded.spec.rewards):
        if term.compares_groups:
            message = f"got {term.name!r}, which compares the rollouts of a group; a tree's are played in rounds, and "
            yield loaded.fault(("rewards", position), f"{message}it would compare each round alone. Remove one.")


@reads("train.kl", "train.algorithm", "model.lora")
def _reference_can_follow(loaded: LoadedSpec) -> Iterator[Fault]:
    kl, path = loaded.spec.train.kl, ("train", "kl", "sync_every")
    if kl.sync_every is None:
        return
    if not loaded.spec.train.has_reference:
        message = f"got {kl.sync_every}; train.kl.coef is 0, so there is no reference. Remove it, or write a coef."
        yield loaded.fault(path, message)
    if loaded.spec.model.lora is not None:
        message = f"got {kl.sync_every} with model.lora; the reference has no adapters. Remove it, or lora."
        yield loaded.fault(path, message)


@reads("train.kl", "train.algorithm", "model.lora", "data.demonstrations")
def _reference_can_start_late(loaded: LoadedSpec) -> Iterator[Fault]:
    kl, shown = loaded.spec.train.kl, loaded.spec.data.demonstrations
    if shown is not None and loaded.spec.train.has_reference and loaded.spec.model.lora is not None:
        path, got = (("train", "kl", "coef"), f"{kl.coef:g}") if kl.coef else (("train", "algorithm"), "no teacher")
        message = f"got {got} with data.demonstrations and model.lora; the reference is the policy after them, and "
        fix = "Write 0" if kl.coef else "Write `teacher: MODEL`"
        yield loaded.fault(path, f"{message}it has no adapters. {fix}, or remove lora.")


@reads("train.loss", "train.observations_in_loss")
def _sampler_is_read(loaded: LoadedSpec) -> Iterator[Fault]:
    loss = loaded.spec.train.loss
    if not loaded.spec.train.observations_in_loss:
        return
    if loss.reads_sampler:
        key = next((key for key in ("probability_mask", "dppo_mask") if getattr(loss, key) is not None), "correction")
        message = "got it with observations_in_loss; the sampler gives no probabilities of observations. Remove it."
        yield loaded.fault(("train", "loss", key), message)
    if loss.observations:
        message = f"got {loss.observations:g} with observations_in_loss, which already trains on them. Remove one."
        yield loaded.fault(("train", "loss", "observations"), message)


@reads("train.loss")
def _cispo_bound_is_ours(loaded: LoadedSpec) -> Iterator[Fault]:
    loss, path = loaded.spec.train.loss, ("train", "loss", "clip_high")
    written = loaded.fault(path, "").path
    if loss.kind is PolicyLossKind.CISPO and written.endswith("epsilon_high"):
        message = (
            f"got {loss.clip_high:g}, which TRL's cispo takes as the bound itself; clip_high is added to 1. Write "
        )
        yield loaded.fault(path, f"{message}`loss: {{clip_high: {max(loss.clip_high - 1, 0):g}}}`.")


def single_rollouts_are_mixed(loaded: LoadedSpec) -> Iterator[Fault]:
    """Warns of a filter that keeps no group of one with reward 0 or 1."""
    filtering = loaded.spec.train.dynamic_filtering
    bounds = None if filtering is None else filtering.bounds
    if bounds is not None and loaded.spec.rollout.num_generations == 1:
        yield loaded.fault(
            ("train", "dynamic_filtering"),
            "rollout.num_generations is 1; a group of one is kept only if its reward lies between "
            f"{bounds[0]:g} and {bounds[1]:g}, so that none with reward 0 or 1 is kept. Remove it, or write "
            "more generations.",
        )


def gae_says_its_way(loaded: LoadedSpec) -> Iterator[Fault]:
    """Warns of gae over turns, whose treatment of observations libraries do not share."""
    estimator = loaded.spec.train.algorithm
    if not is_gae(estimator) or loaded.value(("train", "algorithm", "observations")) is not None:
        return
    several_turns = loaded.spec.rollout.max_turns > 1 and bool(loaded.spec.tools)
    if several_turns and (estimator.gamma, estimator.lam) != (1.0, 1.0):
        engine = loaded.spec.engine
        only = Feature.SKIPPED_OBSERVATIONS in engine.LACKS
        takes = f"the only way of {engine.TITLE}" if only else "OpenRLHF's way"
        yield loaded.fault(
            ("train", "algorithm"),
            f"got gae over turns with gamma {estimator.gamma:g} and lam {estimator.lam:g}; observations are steps of "
            f"value 0, {takes}, where verl skips them, and advantages differ by up to half a deviation. Write "
            "`observations: bootstrap` to keep this way, or skip for verl's.",
        )


def dropped_terms_are_compared(loaded: LoadedSpec) -> Iterator[Fault]:
    """Warns of sums with and without a term that are compared, since nothing is compared within groups."""
    estimator = loaded.spec.train.algorithm
    if estimator.needs_group or estimator.needs_greedy:
        return
    name = loaded.value(("train", "algorithm", "kind"))
    for position, term in enumerate(loaded.spec.rewards):
        if term.is_droppable:
            yield loaded.fault(
                ("rewards", position, "unscorable"),
                f"got drop_term with {name}, which compares rewards across groups; those without the term are lower "
                "or higher for that alone. Write drop_trajectory, or an algorithm that compares within groups, e.g. "
                "grpo.",
            )
