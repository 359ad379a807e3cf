"""The keys that a judge needs elsewhere in a spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlf.core import Fault
from rlf.plan.features import name_engines
from rlf.rewards.term import Unscorable
from rlf.spec import LoadedSpec
from rlf.spec.engines import Feature
from rlf.spec.kinds import is_judge
from rlf.spec.load import reads

if TYPE_CHECKING:
    from rlf.rewards.kinds.judge import JudgeTerm


def groups_are_compared(loaded: LoadedSpec) -> Iterator[Fault]:
    """Warns of judges that compare rollouts where an evaluation has one of each question."""
    spec = loaded.spec
    kinds = [*["greedy"] * spec.eval.greedy, *["sampled"] * (spec.eval.num_samples == 1)]
    for position, term in enumerate(spec.rewards if spec.data.eval is not None and kinds else ()):
        if not is_judge(term) or not term.compares_groups:
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
        if is_judge(term) and term.sentinels:
            yield loaded.fault(
                ("rewards", position, "sentinels"),
                f"{why}; each counts its own sentinels, and starts from 0 after a resume, so a drift is found "
                f"late or never. Write a higher rate{name_engines(Feature.ONE_SCORER)}.",
            )


@reads("rewards[]", "data.train.answer", "data.eval.answer", "rollout.num_generations")
def _judges_have_something_to_compare(loaded: LoadedSpec) -> Iterator[Fault]:
    for position, term in enumerate(loaded.spec.rewards):
        if is_judge(term):
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
def _judges_work_in_several_processes(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = loaded.spec.engine
    why = engine.LACKS.get(Feature.ONE_SCORER)
    for position, term in enumerate(loaded.spec.rewards if why is not None else ()):
        if not is_judge(term):
            continue
        if term.compares_groups:
            message = f"engine {engine.kind} scores each rollout separately, so there is no group to compare. "
            fix = f"Write pointwise{name_engines(Feature.ONE_SCORER)}."
            yield loaded.fault(("rewards", position, "compare"), message + fix)
        if term.serve is not None and not term.endpoints:
            message = f"{why}, each of which would start the judge. "
            fix = "Run `vllm serve MODEL` or `rlf serve MODEL` beside the job and name it in `endpoints`."
            yield loaded.fault(("rewards", position, "serve"), message + fix)
