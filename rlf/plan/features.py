"""Features that a spec uses and its engine lacks: one fault for each, whichever engine it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rlf.algo.health import Action, Guard
from rlf.chat.settings import HistoryPolicy
from rlf.core import Fault
from rlf.rewards.term import Stage
from rlf.spec import LoadedSpec
from rlf.spec.agent import OnBreak
from rlf.spec.engines import ENGINES, EngineSpec, Feature, engines_with
from rlf.spec.kinds import is_gae
from rlf.spec.load import reads
from rlf.spec.nodes import KeyPath


class _Use(NamedTuple):
    """A key of a spec that needs a feature."""

    feature: Feature
    path: KeyPath
    got: Any
    """The value as the message shows it; None: it shows none."""
    instead: str
    """What to write; without a full stop another engine is named beside it."""


def find_feature_faults(loaded: LoadedSpec) -> Iterator[Fault]:
    """The faults of everything that the engine lacks."""
    for find_uses, *keys in _USES:
        yield from reads("engine.kind", *keys)(_find_lacking)(loaded, find_uses)


def name_engines(feature: Feature, word: str = ", or ") -> str:
    """`, or engine: NAME` for the engines that have a feature; empty where none has."""
    names = engines_with(feature)
    return f"{word}engine: {' or '.join(names)}" if names else ""


@reads("engine.kind", "train.algorithm", "train.steps", "data.demonstrations")
def _find_unknown_estimator(loaded: LoadedSpec) -> Iterator[Fault]:
    path = ("train", "algorithm")
    if loaded.spec.imitates_only:
        return  # no step has advantages
    yield from _find_unknown(loaded, path, loaded.value((*path, "kind")), lambda engine: engine.ESTIMATORS)


@reads("engine.kind", "train.loss.kind")
def _find_unknown_loss(loaded: LoadedSpec) -> Iterator[Fault]:
    path = ("train", "loss", "kind")
    yield from _find_unknown(loaded, path, str(loaded.spec.train.loss.kind), lambda engine: engine.LOSSES)


def _find_unknown(
    loaded: LoadedSpec, path: KeyPath, name: str, known_to: Callable[[type[EngineSpec]], tuple[str, ...] | None]
) -> Iterator[Fault]:
    engine = loaded.spec.engine
    known = known_to(type(engine))
    if known is None or name in known:
        return
    others = [other for other in ENGINES.names() if (theirs := known_to(ENGINES.get(other))) is None or name in theirs]
    message = f"got {name}, which {engine.TITLE} does not have (it has {', '.join(known)}). Write one of these"
    yield loaded.fault(path, f"{message}, or engine: {' or '.join(others)}." if others else f"{message}.")


def _find_lacking(loaded: LoadedSpec, find_uses: Callable[[LoadedSpec], Iterator[_Use]]) -> Iterator[Fault]:
    lacks = loaded.spec.engine.LACKS
    for feature, path, got, instead in find_uses(loaded):
        if feature in lacks:
            shown = "" if got is None else f"got {got}; "
            word = ", or " if instead.startswith("Write") else ", or write "
            fix = instead if instead.endswith(".") else f"{instead}{name_engines(feature, word)}."
            yield loaded.fault(path, f"{shown}{lacks[feature]}. {fix}")


def _find_keys(loaded: LoadedSpec) -> Iterator[_Use]:
    """Of keys whose default asks for nothing."""
    for feature, path, instead, shown in _KEYS:
        section = getattr(loaded.spec, path[0])
        if (value := getattr(section, path[1])) != type(section).model_fields[path[1]].default:
            yield _Use(feature, path, shown or f"{value:g}", instead)


_KEYS: tuple[tuple[Feature, tuple[str, str], str, str], ...] = (
    (Feature.ADAPTERS, ("model", "lora"), "Remove it", "adapters"),
    (Feature.OBSERVATIONS_IN_LOSS, ("train", "observations_in_loss"), "Remove it", "true"),
    (Feature.PREFIX_ROWS, ("rollout", "prefix_rows"), "Remove it", "true"),
    (Feature.PREFIX_ROWS, ("rollout", "tree"), "Remove it", "a tree"),
    (Feature.FORKED_HISTORY, ("rollout", "context"), "Remove it", "a limit"),
    (Feature.POOLS, ("train", "sampler"), "Remove it", "pools"),
    (Feature.STRAGGLERS, ("rollout", "oversample"), "Remove it", ""),
    (Feature.STRAGGLERS, ("rollout", "deadline_s"), "Remove it", ""),
    (Feature.STALENESS, ("train", "staleness"), "Write engine: {mode: async}", ""),
    (Feature.EVALUATION_BUDGET, ("limits", "max_usd_per_evaluation"), "Remove it", ""),
)
"""Each with what to write in its place, and how the message shows it; empty: by its number."""


def _find_imitation(loaded: LoadedSpec) -> Iterator[_Use]:
    spec, shown = loaded.spec, loaded.spec.data.demonstrations
    if spec.imitates_only and spec.data.eval is not None:
        instead = "Write `data.eval=null`, and try the model that comes out with `rlf eval`"
        yield _Use(Feature.EVALUATED_IMITATION, ("data", "eval"), "an evaluation set", instead)
    elif shown is not None and not spec.imitates_only:
        instead = "Imitate in a run of its own, without `steps` and with train.algorithm: supervised, and begin this "
        fix = f"{instead}one with its model, as `rlf climb` does"
        yield _Use(Feature.DEMONSTRATIONS, ("data", "demonstrations", "steps"), f"{shown.steps} steps", fix)


def _find_images(loaded: LoadedSpec) -> Iterator[_Use]:
    max_images = loaded.spec.rollout.max_images
    if max_images:
        others = engines_with(Feature.IMAGES)
        instead = f"Write engine: {{kind: {others[0]}}}." if others else "Remove it."
        yield _Use(Feature.IMAGES, ("rollout", "max_images"), max_images, instead)


def _find_turn_rewards(loaded: LoadedSpec) -> Iterator[_Use]:
    for position, term in enumerate(loaded.spec.rewards):
        if term.stage is Stage.TURN:
            yield _Use(Feature.TURN_REWARDS, ("rewards", position, "stage"), "turn", "Write stage: outcome")


def _find_forks(loaded: LoadedSpec) -> Iterator[_Use]:
    if loaded.spec.chat.history is HistoryPolicy.FORK:
        yield _Use(Feature.FORKED_HISTORY, ("chat", "history"), "fork", "Write keep or refuse")


def _find_agents(loaded: LoadedSpec) -> Iterator[_Use]:
    agent = loaded.spec.rollout.agent
    if agent is not None and agent.on_break is OnBreak.SAMPLE:
        yield _Use(Feature.AGENT_BREAKS, ("rollout", "agent", "on_break"), "sample", "Write fail")
    if agent is not None and agent.least_continued is not None:
        found = str(agent.least_continued)
        yield _Use(Feature.AGENT_BREAKS, ("rollout", "agent", "least_continued"), found, "Remove it")


def _find_skipped(loaded: LoadedSpec) -> Iterator[_Use]:
    estimator = loaded.spec.train.algorithm
    if is_gae(estimator) and estimator.observations == "skip":
        yield _Use(Feature.SKIPPED_OBSERVATIONS, ("train", "algorithm", "observations"), "skip", "Write it")


def _find_rounds(loaded: LoadedSpec) -> Iterator[_Use]:
    path = ("train", "dynamic_filtering", "max_rounds")
    if loaded.value(path) is not None:
        yield _Use(Feature.FILTER_ROUNDS, path, None, "Remove it.")


def _find_rollbacks(loaded: LoadedSpec) -> Iterator[_Use]:
    for name, guard in loaded.spec.health:
        if isinstance(guard, Guard) and guard.action is Action.ROLLBACK:
            yield _Use(Feature.ROLLBACK, ("health", name, "action"), "rollback", "Write stop.")


_USES: tuple[tuple[Callable[[LoadedSpec], Iterator[_Use]], *tuple[str, ...]], ...] = (
    (_find_keys, *(".".join(path) for _, path, *_ in _KEYS)),
    (_find_imitation, "data.demonstrations", "data.eval", "train.steps"),
    (_find_images, "rollout.max_images"),
    (_find_turn_rewards, "rewards[]"),
    (_find_forks, "chat.history"),
    (_find_agents, "rollout.agent"),
    (_find_skipped, "train.algorithm"),
    (_find_rounds, "train.dynamic_filtering.max_rounds"),
    (_find_rollbacks, "health"),
)
"""Who finds uses, and the keys that it reads."""
