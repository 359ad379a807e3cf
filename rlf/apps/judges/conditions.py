"""The keys that a judge needs elsewhere in a spec."""

from __future__ import annotations

from collections.abc import Iterator

from rlf.apps.judges.judge import JudgeTerm
from rlf.core import Fault
from rlf.plan.features import name_engines
from rlf.rewards.term import Unscorable
from rlf.spec import LoadedSpec
from rlf.spec.engines import Feature
from rlf.spec.load import reads


def groups_are_compared(loaded: LoadedSpec) -> Iterator[Fault]:
    """Warns of judges that compare rollouts where an evaluation has one of each question."""
    spec = loaded.spec
    kinds = [*["greedy"] * spec.eval.greedy, *["sampled"] * (spec.eval.num_samples == 1)]
    for position, term in enumerate(spec.rewards if spec.data.eval is not None and kinds else ()):
        if not isinstance(term, JudgeTerm) or not term.compares_groups:
            continue
        if position == 0 or term.unscorable is Unscorable.DROP_TRAJECTORY:
            lost = "no success" if position == 0 else "no reward"
            yield loaded.fault(
                ("rewards", position, "compare"),
                f"{' and '.join(kinds)} evaluations have one rollout per question, so the term has nothing to "
                f"compare, and they report {lost}. Put another term first and write `unscorable: drop_term` here; or "
                "write `eval: {num_samples: 4, greedy: false}`.",
            )


def sentinels_are_counted_together(loaded: LoadedSpec) -> Iterator[Fault]:
    """Warns of sentinels that several processes count in parts."""
    why = loaded.spec.engine.LACKS.get(Feature.ONE_SCORER)
    for position, term in enumerate(loaded.spec.rewards if why is not None else ()):
        if isinstance(term, JudgeTerm) and term.sentinels:
            yield loaded.fault(
                ("rewards", position, "sentinels"),
                f"{why}; each counts its own sentinels, and starts from 0 after a resume, so a drift is found "
                f"late or never. Write a higher rate{name_engines(Feature.ONE_SCORER)}.",
            )


@reads("train.algorithm", "rewards")
def greedy_rollouts_have_rewards(loaded: LoadedSpec) -> Iterator[Fault]:
    """An estimator with a greedy rollout has no judge of groups: that rollout is in none."""
    if not loaded.spec.train.algorithm.needs_greedy:
        return
    for position, term in enumerate(loaded.spec.rewards):
        if isinstance(term, JudgeTerm) and term.compares_groups:
            name = loaded.value(("train", "algorithm", "kind"))
            message = f"got {term.compare} against the group; the greedy rollout of {name} has no group to be compared "
            yield loaded.fault(
                ("rewards", position, "compare"), f"{message}with. Write pointwise, or another algorithm."
            )


@reads("rewards[]", "data.train.answer", "data.eval.answer", "rollout.num_generations")
def judges_have_something_to_compare(loaded: LoadedSpec) -> Iterator[Fault]:
    """Gold answers, or a group of rollouts, where a judge compares with them."""
    for position, term in enumerate(loaded.spec.rewards):
        if isinstance(term, JudgeTerm):
            yield from _compares_with_something(loaded, position, term)


def _compares_with_something(loaded: LoadedSpec, position: int, term: JudgeTerm) -> Iterator[Fault]:
    data, num = loaded.spec.data, loaded.spec.rollout.num_generations
    for name, source in (("train", data.train), ("eval", data.eval)):
        if term.compares_with_gold and source is not None and source.answer is None:
            message = f"got null; the judge {term.name!r} compares with gold answers. Name the column with them."
            yield loaded.fault(("data", name, "answer"), message)
    if term.compares_groups and num == 1:
        message = f"got {term.compare}, but rollout.num_generations is 1, so there is nothing to compare. "
        yield loaded.fault(("rewards", position, "compare"), f"{message}Write pointwise, or more generations.")


@reads("rewards[]", "engine.kind")
def judges_work_in_several_processes(loaded: LoadedSpec) -> Iterator[Fault]:
    """Each scores its rollouts alone: a judge compares none of other processes, and is not started by all."""
    engine = loaded.spec.engine
    why = engine.LACKS.get(Feature.ONE_SCORER)
    for position, term in enumerate(loaded.spec.rewards if why is not None else ()):
        if not isinstance(term, JudgeTerm):
            continue
        if term.compares_groups:
            message = f"engine {engine.kind} scores each rollout separately, so there is no group to compare. "
            fix = f"Write pointwise{name_engines(Feature.ONE_SCORER)}."
            yield loaded.fault(("rewards", position, "compare"), message + fix)
        if term.serve is not None and not term.endpoints:
            message = f"{why}, each of which would start the judge. "
            fix = "Run `vllm serve MODEL` or `rlf serve MODEL` beside the job and name it in `endpoints`."
            yield loaded.fault(("rewards", position, "serve"), message + fix)


CHECKS = (greedy_rollouts_have_rewards, judges_have_something_to_compare, judges_work_in_several_processes)
WARNINGS = (groups_are_compared, sentinels_are_counted_together)
