"""The keys that a judge needs elsewhere in a spec, and the tools that a term of kind verify needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlf.core import Fault, nearest
from rlf.plan.features import name_engines
from rlf.rewards.term import Unscorable
from rlf.spec import LoadedSpec
from rlf.spec.engines import Feature
from rlf.spec.kinds import is_judge, is_verify
from rlf.spec.load import reads
from rlf.spec.nodes import KeyPath
from rlf.tools import ToolDeclaration

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


@reads("tools", "rewards[]")
def _tools_can_verify(loaded: LoadedSpec) -> Iterator[Fault]:
    tools = {tool.name: tool for tool in loaded.spec.tools}
    for position, term in enumerate(loaded.spec.rewards):
        if not is_verify(term):
            continue
        tool = tools.get(term.tool)
        if tool is None:
            known = ", ".join(tools) or "none"
            message = f"unknown tool {term.tool!r}{nearest(term.tool, list(tools))} (known: {known}). Declare it under "
            fix = "`tools`, with `hidden: true` where the model is not to see it."
            yield loaded.fault(("rewards", position, "tool"), f"{message}{fix}")
            continue
        limit_s = tool.limits.timeout_s
        if term.timeout_s <= limit_s:
            message = f"got {term.timeout_s:g}; the tool {tool.name!r} has {limit_s:g} s itself, so slow calls would "
            fix = f"be unscorable and not 0. Write more than {limit_s:g}, or lower the tool's limits."
            yield loaded.fault(("rewards", position, "timeout_s"), f"{message}{fix}")
        yield from _arguments_fit(loaded, ("rewards", position, "arguments"), term.arguments, tool)
        if term.expected is not None and term.expected.arguments is not None:
            place = ("rewards", position, "expected", "arguments")
            yield from _arguments_fit(loaded, place, term.expected.arguments, tool)


def _arguments_fit(
    loaded: LoadedSpec, path: KeyPath, arguments: Mapping[str, Any], tool: ToolDeclaration
) -> Iterator[Fault]:
    properties = tool.input_schema.get("properties", {})
    missing = [name for name in tool.input_schema.get("required", ()) if name not in arguments]
    if missing:
        yield loaded.fault(path, f"the tool {tool.name!r} needs {missing[0]!r}. Write `{missing[0]}: ...`.")
    for name in arguments:
        if name not in properties and tool.input_schema.get("additionalProperties") is not True:
            known = ", ".join(properties)
            message = f"the tool {tool.name!r} takes no {name!r}{nearest(name, list(properties))} (known: {known}). "
            yield loaded.fault((*path, name), f"{message}Rename or remove it.")
