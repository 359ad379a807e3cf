"""Conditions between keys: each check is a function from a loaded spec to the faults it finds.

A function with `@reads` in one of the modules named at the end is a check of every spec.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence

from rlf.algo.loss_config import KlKind
from rlf.builtin.names import BUILTIN
from rlf.chat.settings import PACKAGE, FailurePolicy, HistoryPolicy, format_names
from rlf.core import Fault, nearest
from rlf.core.registry import lacking
from rlf.plan import algorithms, features
from rlf.plan.estimate import planned_engine
from rlf.rewards.term import Unscorable, complaints
from rlf.spec import LoadedSpec
from rlf.spec.kinds import is_env_term, is_unpenalised
from rlf.spec.load import SpecCheck, reads
from rlf.spec.models import KlPlace, Schedule
from rlf.spec.nodes import dotted
from rlf.spec.paths import is_local

Finder = Callable[[LoadedSpec], Iterator[Fault]]
MAX_TRAJECTORIES = 1_000_000
"""Of a step: each takes some kilobytes beside its tokens, and all are there before the update."""


def find_faults(loaded: LoadedSpec) -> list[Fault]:
    """The faults of all checks; of a broken spec, of those that read nothing that is broken."""
    return [fault for check in CHECKS for fault in check(loaded)]


@reads("train.algorithm", "rollout.num_generations")
def _group_is_large_enough(loaded: LoadedSpec) -> Iterator[Fault]:
    train, rollout = loaded.spec.train, loaded.spec.rollout
    if train.algorithm.needs_group and rollout.num_generations == 1:
        name = loaded.value(("train", "algorithm", "kind"))
        message = f"got 1; {name} compares the rollouts of one question. Write at least 2, or algorithm: reinforce."
        yield loaded.fault(("rollout", "num_generations"), message)


@reads("train.prompts_per_step", "train.mini_batches", "rollout.num_generations")
def _mini_batches_divide(loaded: LoadedSpec) -> Iterator[Fault]:
    train, rollout = loaded.spec.train, loaded.spec.rollout
    batch = train.prompts_per_step * rollout.num_generations
    if batch > MAX_TRAJECTORIES:
        yield loaded.fault(
            ("train", "prompts_per_step"),
            f"got {train.prompts_per_step}; with {rollout.num_generations} generations each a step has {batch:,} "
            f"trajectories, which no memory holds at once; expected at most {MAX_TRAJECTORIES:,}. Write fewer.",
        )
    elif batch % train.mini_batches:
        divisors = [n for n in range(1, batch + 1) if batch % n == 0]
        near = min(divisors, key=lambda n: abs(n - train.mini_batches))
        yield loaded.fault(
            ("train", "mini_batches"),
            f"got {train.mini_batches}; a step has {train.prompts_per_step} x {rollout.num_generations} = {batch} "
            f"trajectories, which must divide evenly. Write e.g. `mini_batches: {near}`.",
        )


@reads("name", "train.observations_in_loss")
def _observations_only_in_ablations(loaded: LoadedSpec) -> Iterator[Fault]:
    spec = loaded.spec
    if spec.train.observations_in_loss and not spec.name.endswith("_ablation"):
        yield loaded.fault(
            ("train", "observations_in_loss"),
            "got true; training on tool output is wrong, except in an experiment that shows this. Remove it, or call "
            f"the spec `{spec.name}_ablation`.",
        )


@reads("rollout.max_new_tokens", "rollout.context", "rollout.max_total_tokens")
def _parts_fit_the_whole(loaded: LoadedSpec) -> Iterator[Fault]:
    rollout, most = loaded.spec.rollout, loaded.spec.rollout.max_total_tokens
    if rollout.max_new_tokens is not None and rollout.max_new_tokens > most:
        message = (
            f"got {rollout.max_new_tokens}; a trajectory has max_total_tokens: {most} in all. Write less, or raise "
        )
        yield loaded.fault(("rollout", "max_new_tokens"), f"{message}max_total_tokens.")
    if rollout.context is not None and rollout.context.limit >= most:
        message = (
            f"got {rollout.context.limit}; a context ends at max_total_tokens: {most}, so that none is begun before. "
        )
        fix = "Write less, by a turn and its results, or raise max_total_tokens."
        yield loaded.fault(("rollout", "context", "limit"), message + fix)


@reads("rollout.schedule", "rollout.oversample", "rollout.deadline_s")
def _late_groups_hold_nothing_back(loaded: LoadedSpec) -> Iterator[Fault]:
    rollout = loaded.spec.rollout
    if rollout.has_stragglers and rollout.schedule is Schedule.LOGICAL:
        message = "got logical, under which sampling waits for the slowest tool, so no group can be late. "
        yield loaded.fault(("rollout", "schedule"), f"{message}Write invariant or clock.")


@reads("rollout.stop")
def _stops_say_something(loaded: LoadedSpec) -> Iterator[Fault]:
    for position, text in enumerate(loaded.spec.rollout.stop):
        if not text:
            message = 'got ""; expected text, since every turn contains the empty text. Remove it.'
            yield loaded.fault(("rollout", "stop", position), message)


@reads("tools[]")
def _tools_are_named_once(loaded: LoadedSpec) -> Iterator[Fault]:
    yield from _named_once(loaded, "tools", [tool.name for tool in loaded.spec.tools], "tool")


@reads("rewards[]")
def _terms_are_named_once(loaded: LoadedSpec) -> Iterator[Fault]:
    yield from _named_once(loaded, "rewards", [term.name for term in loaded.spec.rewards], "reward term")


def _named_once(loaded: LoadedSpec, key: str, names: Sequence[str], noun: str) -> Iterator[Fault]:
    for index, name in enumerate(names):
        if name in names[:index]:
            other = dotted((key, names.index(name)))
            message = f"got a second {noun} named {name!r}, the name of {other}. Rename or remove one of them."
            yield loaded.item_fault((key, index), message)


@reads("rewards")
def _rewards_weigh_something(loaded: LoadedSpec) -> Iterator[Fault]:
    if not any(term.peak_weight for term in loaded.spec.rewards):
        message = "every weight is 0, so there is nothing to train on. Give one term a weight other than 0"
        message += " that is not hidden." if any(term.hidden for term in loaded.spec.rewards) else "."
        yield loaded.fault(("rewards",), message)


@reads("rewards")
def _dropped_terms_leave_others(loaded: LoadedSpec) -> Iterator[Fault]:
    weighed = [position for position, term in enumerate(loaded.spec.rewards) if term.peak_weight]
    only = loaded.spec.rewards[weighed[0]] if len(weighed) == 1 else None
    if only is not None and only.threshold is None and only.unscorable is Unscorable.DROP_TERM:
        message = "got drop_term for the only term with a weight: nothing is left to sum without it. Write "
        path = ("rewards", weighed[0], "unscorable")
        yield loaded.fault(path, f"{message}drop_trajectory, or give another term a weight.")


@reads("rewards")
def _terms_hang_together(loaded: LoadedSpec) -> Iterator[Fault]:
    for position, key, message in complaints(loaded.spec.rewards):
        yield loaded.fault(("rewards", position, *key), message)


_NOT_SUCCESS = (
    "A checkpoint that is kept for its success would be chosen by it, and it is to check what is chosen. Name a term "
    "that is trained on in `success: {term: NAME}`, or put one first."
)


@reads("rewards", "success")
def _success_is_a_share(loaded: LoadedSpec) -> Iterator[Fault]:
    success, by_name = loaded.spec.success, {term.name: term for term in loaded.spec.rewards}
    if success is None:
        first = loaded.spec.rewards[0]
        if first.hidden:
            message = f"success is the value of the first term, and {first.name!r} is hidden. {_NOT_SUCCESS}"
            yield loaded.item_fault(("rewards", 0), message)
            return
        low, high = first.bounds
        if not 0 <= low <= high <= 1:
            is_known = not math.isinf(high - low)
            gives = f"gives values from {low:g} to {high:g}" if is_known else "declares no range of its values"
            own = "" if is_known else "`range: [0, 1]` in it where they are, or "
            message = (
                f"success is the value of the first term, and {first.name!r} {gives}; expected 0 to 1. Write {own}e.g. "
                f"`success: {{term: {first.name}, at_least: {min(1.0, high):g}}}` beside rewards."
            )
            yield loaded.item_fault(("rewards", 0), message)
        return
    term = by_name.get(success.term)
    if term is None:
        known = list(by_name)
        message = f"unknown term {success.term!r}{nearest(success.term, known)} (known: {', '.join(known)})"
        yield loaded.fault(("success", "term"), f"{message}. Name one of these.")
        return
    if term.hidden:
        yield loaded.fault(("success", "term"), f"{term.name!r} is hidden. {_NOT_SUCCESS}")
    low, high = term.bounds
    if not success.is_predicate and math.isinf(high - low):
        message = f"{term.name!r} gives any number, which has no scale to 0 to 1. Write e.g. `at_least: 1` here."
        yield loaded.fault(("success",), message)
    for key in ("at_least", "at_most"):
        bound = getattr(success, key)
        if bound is not None and not low <= bound <= high:
            message = f"got {bound:g}; {term.name!r} gives values from {low:g} to {high:g}. Write one of these."
            yield loaded.fault(("success", key), message)
    if success.at_least is not None and success.at_most is not None and success.at_least > success.at_most:
        message = f"got {success.at_least:g}, above at_most: {success.at_most:g}: nothing is a success. Swap them."
        yield loaded.fault(("success", "at_least"), message)


@reads("data.train.answer", "data.eval.answer", "rewards[]")
def _answers_are_there(loaded: LoadedSpec) -> Iterator[Fault]:
    data = loaded.spec.data
    needing = [term.name for term in loaded.spec.rewards if term.needs_answer]
    sources = {"train": data.train, "eval": data.eval}
    for name, source in sources.items():
        if needing and source is not None and source.answer is None:
            message = f"got null; the reward term {needing[0]!r} compares with gold answers. Name the column with them."
            yield loaded.fault(("data", name, "answer"), message)


@reads("env", "rewards[]", "rollout.agent")
def _scores_have_a_world(loaded: LoadedSpec) -> Iterator[Fault]:
    env = loaded.spec.env
    for position, term in enumerate(loaded.spec.rewards):
        if not is_env_term(term):
            continue
        if env is None and loaded.spec.rollout.agent is not None:
            continue  # scores that the agent reports
        if env is None:
            message = (
                "there is no world that scores. Declare one, e.g. `env: {kind: python, callable: world.py:World}`."
            )
            yield loaded.fault(("rewards", position, "kind"), message)
        elif term.score is not None and env.score_names is not None and term.score not in env.score_names:
            known = list(env.score_names)
            message = f"the world gives no score {term.score!r}{nearest(term.score, known)} (known: {', '.join(known)})"
            yield loaded.fault(("rewards", position, "score"), f"{message}. Write one of these.")
        elif term.score is not None:
            for name, part in env.parts.items():
                is_scaled = term.score == "score" and name in getattr(env, "scores", {})
                if is_scaled or part.score_names is None or term.score in part.score_names:
                    continue
                message = f"world {name!r} gives no score {term.score!r} (known: {', '.join(part.score_names)}): its "
                fix = f"Write `score: score`, and in env `scores: {{{name}: {{score: NAME, range: [0, 1]}}}}`."
                yield loaded.fault(("rewards", position, "score"), f"{message}trajectories have no reward. {fix}")


@reads("rollout", "env", "chat.history", "eval.faults")
def _agent_plays_alone(loaded: LoadedSpec) -> Iterator[Fault]:
    spec, rollout = loaded.spec, loaded.spec.rollout
    disturbed = "are given with rollout.agent, whose calls they do not reach. Remove them."
    times = "an agent's calls come at its own times, and it may not be waited for. Write invariant or clock."
    contexts = "with rollout.agent each prompt that continues no earlier call is a context of its own"
    lost = f"got {rollout.max_failed_turns}; with rollout.agent the agent ends its work. Remove it."
    middle = "with rollout.agent, whose program cannot begin in the middle. Remove it."
    for section, key, is_given, message in (
        ("rollout", "faults", rollout.faults is not None, disturbed),
        ("eval", "faults", spec.eval.faults is not None, disturbed),
        ("rollout", "max_failed_turns", rollout.max_failed_turns is not None, lost),
        ("rollout", "prefix_rows", rollout.prefix_rows, f"got true {middle}"),
        ("rollout", "tree", rollout.tree is not None, f"got a tree {middle}"),
        ("rollout", "schedule", rollout.schedule is Schedule.LOGICAL, f"got logical; {times}"),
        ("chat", "history", spec.chat.history is HistoryPolicy.FORK, f"got fork; {contexts}. Write keep."),
        ("rollout", "context", rollout.context is not None, f"{contexts}, whatever its size. Remove it."),
    ):
        if rollout.agent is not None and is_given:
            yield loaded.fault((section, key), message)


@reads("train.critic", "train.algorithm")
def _critic_has_a_use(loaded: LoadedSpec) -> Iterator[Fault]:
    if loaded.value(("train", "critic")) is not None and not loaded.spec.train.algorithm.needs_critic:
        name = loaded.value(("train", "algorithm", "kind"))
        message = f"{name} trains no critic, so nothing reads this. Remove it, or write algorithm: gae."
        yield loaded.fault(("train", "critic"), message)


@reads("train.kl")
def _kl_in_the_loss_pulls(loaded: LoadedSpec) -> Iterator[Fault]:
    kl = loaded.spec.train.kl
    if kl.coef > 0 and kl.place is KlPlace.LOSS and kl.kind is KlKind.K1:
        message = "got k1 in the loss, whose gradient is 0 on average. Write kind: k3, or place: reward."
        yield loaded.fault(("train", "kl", "kind"), message)


@reads("train.reward_clip")
def _bounds_are_ordered(loaded: LoadedSpec) -> Iterator[Fault]:
    low, high = loaded.spec.train.reward_clip
    if low >= high:
        yield loaded.fault(("train", "reward_clip"), f"got [{low}, {high}]; expected the lower bound first. Swap them.")


@reads("train.dynamic_filtering", "rollout.num_generations")
def _filter_keeps_something(loaded: LoadedSpec) -> Iterator[Fault]:
    kept = loaded.spec.train.dynamic_filtering
    if kept is None:
        return
    if kept.low is not None and kept.high is not None and kept.low >= kept.high:
        message = f"got {kept.low}, which is not below high: {kept.high}; no group could be kept. Write a lower one."
        yield loaded.fault(("train", "dynamic_filtering", "low"), message)
    if kept.bounds is None and loaded.spec.rollout.num_generations == 1:
        message = "keeps groups whose rewards differ, and rollout.num_generations is 1. Remove it, or write 2 or more."
        yield loaded.fault(("train", "dynamic_filtering"), message)


@reads("eval", "data.eval", "data.demonstrations")
def _evaluation_has_data(loaded: LoadedSpec) -> Iterator[Fault]:
    shown = loaded.spec.data.demonstrations
    has_data = loaded.spec.data.eval is not None or (shown is not None and shown.heldout > 0)
    if loaded.value(("eval",)) is not None and not has_data:
        message = "there is no data.eval to evaluate on. Add `data: {eval: {path: ...}}`, or remove this."
        yield loaded.fault(("eval",), message)


@reads("chat.format")
def _chat_format_is_known(loaded: LoadedSpec) -> Iterator[Fault]:
    name, known = loaded.spec.chat.format, ["auto", *format_names()]
    if name not in known:
        meant = lacking(PACKAGE, name) or nearest(name, known)
        message = f"unknown chat format {name!r}{meant} (known: {', '.join(known)}). Write one of these."
        yield loaded.fault(("chat", "format"), message)


@reads("chat.format", "chat.thinking_tag")
def _thinking_stands_in_tags(loaded: LoadedSpec) -> Iterator[Fault]:
    name = loaded.spec.chat.format
    if loaded.spec.chat.thinking_tag is None or name not in format_names():
        return
    from rlf.chat.format import FORMATS

    if not FORMATS.get(name).thinks_in_tags:
        message = f"the chat format {name} marks thinking without a tag. Remove this."
        yield loaded.fault(("chat", "thinking_tag"), message)


@reads("chat.failures", "rewards")
def _penalties_are_counted(loaded: LoadedSpec) -> Iterator[Fault]:
    penalised = [str(kind) for kind, reply in loaded.spec.chat.failures.items() if reply is FailurePolicy.PENALISE]
    if penalised and not any(is_unpenalised(term) for term in loaded.spec.rewards):
        message = (
            "got penalise; no reward term counts what is penalised. Add e.g. "
            "`{kind: rule, rule: unpenalised, weight: 0.1}` to rewards, or write feedback."
        )
        yield loaded.fault(("chat", "failures", penalised[0]), message)


@reads(*(f"data.{name}.{key}" for name in ("train", "eval") for key in ("path", "config", "split")))
def _hub_keys_have_a_hub(loaded: LoadedSpec) -> Iterator[Fault]:
    for name in ("train", "eval"):
        path = str(loaded.value(("data", name, "path")) or "")
        for key in ("config", "split"):
            value = loaded.value(("data", name, key))
            if value is not None and (path.startswith(BUILTIN) or is_local(path)):
                what = "builtin names are whole" if path.startswith(BUILTIN) else "a file has none"
                message = f"got {value!r}; only Hugging Face datasets have a {key}, {what}. Remove it."
                yield loaded.fault(("data", name, key), message)


@reads("rollout.max_images", "data.train.images", "data.eval.images")
def _images_have_room(loaded: LoadedSpec) -> Iterator[Fault]:
    max_images, data = loaded.spec.rollout.max_images, loaded.spec.data
    for name, source in (("train", data.train), ("eval", data.eval)):
        if max_images == 0 and source is not None and source.images is not None:
            message = "names images, but rollout.max_images is 0. Write how many a trajectory may hold, or remove "
            yield loaded.fault(("data", name, "images"), f"{message}this.")


def _engine_honours_it(loaded: LoadedSpec) -> Iterator[Fault]:
    if loaded.is_sound(("engine", "kind")):
        yield from planned_engine(loaded.spec).find_faults(loaded)


def term_conditions(loaded: LoadedSpec, name: str) -> Iterator[Fault]:
    """The faults of the `CHECKS` or `WARNINGS` that the kinds of a spec's terms bring, each loaded for them alone."""
    for module in dict.fromkeys(filter(None, (type(term).CONDITIONS for term in loaded.spec.rewards))):
        for check in getattr(importlib.import_module(module), name):
            yield from check(loaded)


def _terms_keep_their_conditions(loaded: LoadedSpec) -> Iterator[Fault]:
    yield from term_conditions(loaded, "CHECKS")


_MODULES = (globals(), *map(vars, (algorithms, features)))
CHECKS: tuple[Finder, ...] = (
    *(found for names in _MODULES for found in names.values() if isinstance(found, SpecCheck)),
    _terms_keep_their_conditions,
    features.find_feature_faults,
    _engine_honours_it,
)
